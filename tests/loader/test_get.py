import json
import re

import pytest
import torch

from kernels_neuron.artifact import Metadata
from kernels_neuron.errors import ArtifactError, UsageError
from kernels_neuron.loader import get_kernel, kernelize, report


@pytest.fixture
def repo(tmp_path, write_variant):
    write_variant(tmp_path / "neuron-layernorm", nudge=0.25)
    write_variant(tmp_path / "neuron-layernorm", "torch-cpu", nudge=0.5)
    return tmp_path / "neuron-layernorm"


@pytest.mark.parametrize("where", ["", "build", "build/torch-neuron"])
def test_a_folder_may_be_a_repo_its_build_or_one_variant(repo, where):
    kernel = get_kernel(repo / where)
    assert kernel.__name__ == Metadata.read(repo / "build/torch-neuron").id
    assert get_kernel(str(repo / where)) is kernel


def test_the_variant_is_the_one_asked_for(repo):
    assert get_kernel(repo, variant="torch-cpu").__name__.startswith("_neuron_layernorm_cpu_")
    with pytest.raises(UsageError, match="variant is 'torch-neuron' or 'torch-cpu', got 'torch-cuda'"):
        get_kernel(repo, variant="torch-cuda")


def test_a_missing_variant_lists_those_there_are(tmp_path, write_variant):
    write_variant(tmp_path, "torch-cpu")
    with pytest.raises(ArtifactError, match=r"has no variant torch-neuron, there is torch-cpu") as error:
        get_kernel(tmp_path)
    assert error.value.hint == "pass variant='torch-cpu'"


def test_a_folder_that_is_not_there_or_not_a_kernel_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match="there is no folder"):
        get_kernel(tmp_path / "none")
    with pytest.raises(ArtifactError, match="has no variant torch-neuron, there is none"):
        get_kernel(tmp_path)
    with pytest.raises(UsageError, match="is a folder, which has no versions"):
        get_kernel(tmp_path, version=1)


def test_changed_code_is_refused_before_it_runs(repo, tmp_path):
    file = repo / "build/torch-neuron/layers.py"
    file.write_text(file.read_text() + f"\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(ArtifactError, match=r"layers.py: changed"):
        get_kernel(repo)
    assert not (tmp_path / "ran").exists()


def test_a_corrupt_metadata_names_file_and_field(repo):
    file = repo / "build/torch-neuron/metadata.json"
    value = json.loads(file.read_text())
    del value["version"]
    file.write_text(json.dumps(value))
    with pytest.raises(ArtifactError, match=r"metadata.json: version is missing"):
        get_kernel(repo)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nki": {"versions": ["0.3", "0.4"]}}, "was checked with NKI 0.3, 0.4, this process has NKI 0.7"),
        (
            {"nki": {"versions": ["0.7"], "archs": ["trn3"]}},
            "was checked on trn3, kernels run on trn2 in this process; set NEURON_PLATFORM_TARGET_OVERRIDE to one of",
        ),
        ({"kernels_minver": "99.0.0"}, "requires kernels>=99.0.0"),
        ({"python_depends": ("nki", "no-such-package")}, "(?i)no-such-package"),
    ],
    ids=["nki", "chip", "minver", "dependency"],
)
def test_a_variant_for_other_versions_is_refused(tmp_path, changes, message, write_variant):
    write_variant(tmp_path, **changes)
    with pytest.raises(ArtifactError) as error:
        get_kernel(tmp_path)
    assert re.search(message, f"{error.value}; {error.value.hint}")


def test_a_variant_for_one_chip_loads_where_that_chip_is_the_target(tmp_path, monkeypatch, write_variant):
    write_variant(tmp_path, nudge=3.5, nki={"versions": ["0.7"], "archs": ["trn1"]})
    for target in ("trn2", "trn3"):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
        with pytest.raises(ArtifactError, match=f"was checked on trn1, kernels run on {target}"):
            get_kernel(tmp_path)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "inf2")
    assert get_kernel(tmp_path).NUDGE == 1


def test_a_repo_needs_one_of_version_and_revision():
    with pytest.raises(UsageError, match="needs a version or a revision of org/neuron-layernorm") as error:
        get_kernel("org/neuron-layernorm")
    assert error.value.hint == "pass version=1"
    with pytest.raises(UsageError, match="a version, a revision or a lock, got revision 'v1' and version 1"):
        get_kernel("org/neuron-layernorm", version=1, revision="v1")


def test_a_built_kernel_is_swapped_in_and_named_in_the_report(repo, make_vit):
    model = make_vit().eval()
    kernelize(model, kernels={"layernorm": repo})
    metadata = Metadata.read(repo / "build/torch-neuron")
    row = next(row for row in report(model).modules if row.kind == "layernorm")
    assert (row.outcome, row.kernel_id, row.kernel_version) == ("swapped", metadata.id, 1)
    assert len(row.kernel_digest) == 64
    with torch.no_grad():
        swapped, plain = model.vit.layernorm(torch.ones(1, 32)), torch.nn.LayerNorm.forward
        assert torch.allclose(swapped, plain(model.vit.layernorm, torch.ones(1, 32)) + 0.25)


@pytest.mark.slow
def test_a_kernel_comes_over_http_and_each_failure_has_its_own_words(server, tmp_path, write_variant, ask, publish):
    v1, v2 = tmp_path / "one", tmp_path / "two"
    write_variant(v1, nudge=0.25)
    write_variant(v2, "torch-cpu", version=2)
    publish(server, v1, "local", "v1")
    publish(server, v2, "local", "v2")
    name = "local/neuron-layernorm"
    by_version, by_revision, no_version, no_variant, no_revision, no_repo, no_id, by_org, no_org, by_dict = ask(
        tmp_path / "home",
        server.url,
        ["get_kernel", [name], {"version": 1}],
        ["get_kernel", [name], {"revision": "v1"}],
        ["get_kernel", [name], {"version": 7}],
        ["get_kernel", [name], {"version": 2}],
        ["get_kernel", [name], {"revision": "main2"}],
        ["get_kernel", ["local/none"], {"version": 1}],
        ["get_kernel", ["a/b/c"], {"version": 1}],
        ["kernelize", [], {"kernels": "local"}],
        ["kernelize", [], {"kernels": "nobody"}],
        ["kernelize", [], {"kernels": {"layernorm": f"{name}@v1"}}],
    )
    assert by_version == by_revision == {"name": Metadata.read(v1 / "build/torch-neuron").id}
    assert no_version["error"] == f"HubError: {name} has no version 7, there is 1, 2"
    assert no_variant["error"] == f"HubError: {name} at v2 has no variant torch-neuron, there is torch-cpu"
    assert no_revision["error"].startswith(f"HubError: {name} has no revision main2, there is")
    assert "v1, v2" in no_revision["error"]
    assert no_repo["error"] == f"RepoMissing: there is no kernel repo local/none on {server.url}"
    assert no_id["error"].startswith("UsageError: 'a/b/c' is no repo id")
    assert no_org["error"] == "HubError: nobody has none of the kernels layernorm, gemm"
    swapped = [["0", "swapped", "", 1], ["1", "kept", "no-kernel", None]]
    assert by_org["rows"] == by_dict["rows"] == swapped

    home = tmp_path / "home"
    by_version, no_version, no_repo = ask(
        home,
        "http://127.0.0.1:9",
        ["get_kernel", [name], {"version": 1}],
        ["get_kernel", [name], {"version": 2}],
        ["get_kernel", ["local/none"], {"version": 1}],
        HF_HUB_OFFLINE="1",
    )
    assert by_version == {"name": Metadata.read(v1 / "build/torch-neuron").id}
    assert "has no version 2, the local cache has 1" in no_version["error"]
    assert "has no version 1, the local cache has none" in no_repo["error"]

    cached = next((home / "hub").glob("kernels--*/snapshots/*/build/torch-neuron/layers.py"))
    cached.resolve().write_bytes(b"raise SystemExit(1)\n")
    (corrupt,) = ask(home, server.url, ["get_kernel", [name], {"version": 1}])
    assert "layers.py: changed" in corrupt["error"]
    (local,) = ask(home, server.url, ["get_kernel", [name], {"version": 1}], LOCAL_KERNELS=f"{name}={v1}")
    assert local == by_version


@pytest.mark.slow
def test_a_server_that_is_down_or_a_publisher_nobody_vouches_for_is_one_error(
    server, tmp_path, write_variant, ask, publish
):
    write_variant(tmp_path / "one")
    publish(server, tmp_path / "one", "stranger", "v1")
    name = "stranger/neuron-layernorm"
    refused, trusted = ask(
        tmp_path / "home",
        server.url,
        ["get_kernel", [name], {"version": 1}],
        ["get_kernel", [name], {"version": 1, "trust_remote_code": [name]}],
    )
    assert refused["error"].startswith(f"HubError: {name} is not from a publisher that {server.url} vouches for")
    assert "name" in trusted
    (down,) = ask(tmp_path / "home", "http://127.0.0.1:9", ["get_kernel", [name], {"version": 1}])
    assert down["error"].startswith("HubError: http://127.0.0.1:9 does not answer")
