"""Each way in which loading can fail: refused before any line of the kernel runs, in one message, with the way out."""

import json
import sys

import pytest

from kernels_neuron.artifact import Metadata, digest_files
from kernels_neuron.errors import ArtifactError, KernelsNeuronError, UsageError
from kernels_neuron.loader import get_kernel


@pytest.fixture
def variant(tmp_path, write_variant, request):
    """A whole variant with an id of its own."""
    return write_variant(tmp_path / "repo", nudge=len(request.node.name) + sum(map(ord, request.node.name)) / 7)


def change(variant, **fields):
    """Give metadata.json these fields; None takes one out."""
    value = json.loads((variant / "metadata.json").read_text()) | fields
    kept = {key: one for key, one in value.items() if one is not None}
    (variant / "metadata.json").write_text(json.dumps(kept))


def load_and_change(variant):
    """Other bytes with a digest that fits, under the id of what is loaded."""
    get_kernel(variant)
    (variant / "layers.py").write_text("OTHER = 1\n")
    change(variant, digest={"algorithm": "sha256", "files": digest_files(variant)})


DAMAGES = {
    "one byte changed": (
        lambda v: (v / "layers.py").write_text((v / "layers.py").read_text().replace("eps) +", "eps) -")),
        r"layers\.py: changed, its SHA-256 is",
    ),
    "a file more": (lambda v: (v / "extra.py").write_text(""), r"extra\.py: not listed in metadata\.json"),
    "a hidden file more": (lambda v: (v / ".hidden").write_text(""), r"\.hidden: not listed in metadata\.json"),
    "a file gone": (lambda v: (v / "layers.py").unlink(), r"layers\.py: missing"),
    "two files swapped": (
        lambda v: (
            (v / "layers.py").rename(v / "x"),
            (v / "__init__.py").rename(v / "layers.py"),
            (v / "x").rename(v / "__init__.py"),
        ),
        r"__init__\.py: changed",
    ),
    "a link out of the repo": (
        lambda v: (v / "layers.py").symlink_to((v / "layers.py").rename(v.parents[2] / "out.py")),
        r"layers\.py: a link that leaves the repo",
    ),
    "no metadata": (lambda v: (v / "metadata.json").unlink(), "has no variant torch-neuron, there is none"),
    "empty metadata": (lambda v: (v / "metadata.json").write_text(""), r"metadata\.json: is empty"),
    "metadata that is not JSON": (lambda v: (v / "metadata.json").write_text("{"), r"metadata\.json: not JSON"),
    "no version in the metadata": (lambda v: change(v, version=None), r"metadata\.json: version is missing"),
    "no digest": (lambda v: change(v, digest=None), "lists no digests"),
    "a dependency that is not installed": (
        lambda v: change(v, **{"python-depends": ["nki", "helion"]}),
        r"metadata\.json: .*helion",
    ),
    "other kernels it needs": (
        lambda v: change(v, **{"kernel-depends": [{"repo-id": "org/base", "version": 1}]}),
        r"depends on other kernels",
    ),
    "a newer kernels library": (lambda v: change(v, **{"kernels-minver": "99.0.0"}), r"kernels>=99\.0\.0"),
    "another NKI": (
        lambda v: change(v, nki={"versions": ["0.3"]}),
        r"checked with NKI 0\.3, this process has NKI 0\.7",
    ),
    "another chip": (
        lambda v: change(v, nki={"versions": ["0.7"], "archs": ["trn1"]}),
        "checked on trn1, kernels run on",
    ),
    "an id that is taken": (load_and_change, "has loaded with other contents from"),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_a_variant_that_is_not_as_it_should_be_is_refused_before_it_runs(variant, damage, said):
    id = Metadata.read(variant).id
    damage(variant)
    loaded = sys.modules.get(id)
    with pytest.raises(ArtifactError, match=said) as error:
        get_kernel(variant.parents[1])
    assert error.value.hint, "what to do is said too"
    assert sys.modules.get(id) is loaded, "no line of it ran"


CALLS = {
    "no folder": (lambda v: get_kernel(v / "none"), ArtifactError, "there is no folder"),
    "a variant there is not": (
        lambda v: get_kernel(v.parents[1], variant="torch-cpu"),
        ArtifactError,
        "has no variant",
    ),
    "a variant nobody knows": (lambda v: get_kernel(v, variant="torch-cuda"), UsageError, "got 'torch-cuda'"),
    "a version of a folder": (lambda v: get_kernel(v, version=1), UsageError, "is a folder, which has no versions"),
    "neither version nor revision": (
        lambda v: get_kernel("org/x"),
        UsageError,
        "needs a version or a revision of org/x",
    ),
    "version and revision": (lambda v: get_kernel("org/x", version=1, revision="v1"), UsageError, "got revision 'v1'"),
    "no lock": (lambda v: get_kernel("org/x", lock=v), UsageError, "there is no lock file"),
    "no file of keys": (lambda v: get_kernel(v, require_signature=v / "keys"), UsageError, "no file of trusted keys"),
    "no signature": (
        lambda v: get_kernel(v, require_signature=keys(v)),
        ArtifactError,
        "is not signed by anybody trusted",
    ),
}


def keys(variant):
    path = variant.parents[2] / "keys"
    path.write_text("ed25519 11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo= *\n")
    return path


@pytest.mark.parametrize(("call", "kind", "said"), CALLS.values(), ids=CALLS)
def test_a_call_that_cannot_be_answered_says_why(variant, call, kind, said):
    with pytest.raises(KernelsNeuronError, match=said) as error:
        call(variant)
    assert type(error.value) is kind


def remote(name, **kwargs):
    return ["get_kernel", [name], kwargs]


@pytest.mark.slow
def test_what_the_server_lacks_or_refuses_is_said_each_in_its_own_words(server, tmp_path, write_variant, ask, publish):
    write_variant(tmp_path / "k")
    for owner in ("local", "stranger"):
        publish(server, tmp_path / "k", owner, "v1")
    server.store.create("local/neuron-hidden", author="x", private=True)
    name, home = "local/neuron-layernorm", tmp_path / "home"
    cases = {
        "there is no kernel repo local/none on": remote("local/none", version=1),
        "there is no kernel repo local/neuron-hidden on": remote("local/neuron-hidden", version=1),
        f"{name} has no version 7, there is 1": remote(name, version=7),
        f"{name} has no revision v9, there is main, v1": remote(name, revision="v9"),
        f"{name} at main has no variant torch-neuron, there is none": remote(name, revision="main"),
        "stranger/neuron-layernorm is not from a publisher that": remote("stranger/neuron-layernorm", version=1),
        "'a/b/c' is no repo id and no kernel folder": remote("a/b/c", version=1),
    }
    answers = ask(home, server.url, *cases.values())
    (wrong_token,) = ask(home, server.url, remote(name, version=1), HF_TOKEN="hf_wrong")
    (down,) = ask(home, "http://127.0.0.1:9", remote(name, version=1))
    (cold,) = ask(home, server.url, remote(name, version=1), HF_HUB_OFFLINE="1")
    said = dict(zip(cases, answers, strict=True))
    said |= {"Invalid credentials in Authorization header": wrong_token}
    said |= {"http://127.0.0.1:9 does not answer": down, f"{name} has no version 1, the local cache has none": cold}
    for expected, answer in said.items():
        assert expected in answer["error"] and answer["hint"], (expected, answer)
