"""The publish flow on a scaffolded kernel: rights first, all checks before the first upload, and read back."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels_neuron.builder import scaffold
from kernels_neuron.errors import FileProblems, HubError, UsageError
from kernels_neuron.flows.publish import publish
from kernels_neuron.hub.serving import run_server
from kernels_neuron.hub.store import Store
from kernels_neuron.manifest import Manifest


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """A project of its own with two kernels."""
    project = tmp_path / "project"
    project.mkdir()
    scaffold("scaled_add", project)
    scaffold("shifted_add", project)
    return Manifest.read(project / "kernel.toml")


@pytest.fixture
def server(tmp_path: Path):
    with run_server(tmp_path / "registry") as running:
        yield running


def send(manifest: Manifest, server, names=None, **kwargs):
    options = {
        "to": server.url,
        "token": server.token,
        "owner": "org",
        "manifest": manifest,
        "verified": True,
        **kwargs,
    }
    return publish(names, **options)


def test_all_kernels_of_the_manifest_are_published(manifest, server):
    rows = send(manifest, server)
    assert [row.plan.repo_id for row in rows] == ["org/neuron-scaled-add", "org/neuron-shifted-add"]
    for row in rows:
        repo = server.store.repo(row.plan.repo_id)
        assert repo.branches["v1"] == row.commit
        files = set(server.store.commit(repo, "v1").files)
        assert {"build/torch-neuron/metadata.json", "build/torch-cpu/metadata.json", "benchmarks/benchmark.py"} <= files


def test_the_order_is_rights_build_checks_and_then_one_commit_a_branch_read_back(manifest, server):
    said: list[str] = []
    send(manifest, server, ["scaled_add"], verified=False, step=said.append)
    verbs = [line.removeprefix("scaled_add: ").split()[0] for line in said]
    assert verbs == ["ask", "build", "check", "lint", "verify", "create", "create", "commit", "commit", "read"]
    store = server.store
    repo = store.repo("org/neuron-scaled-add")
    assert [len(list(store.history(repo, branch))) for branch in ("v1", "main")] == [2, 2]


def test_a_second_run_changes_nothing(manifest, server):
    first = send(manifest, server)
    second = send(manifest, server)
    assert [row.commit for row in first] == [row.commit for row in second]
    assert all(row.plan.is_empty for row in second)


def test_a_dry_run_says_what_would_change_and_writes_nothing(manifest, server):
    (row,) = send(manifest, server, ["scaled_add"], dry_run=True)
    assert row.commit is None and row.plan.creates_repo and "build/torch-cpu/metadata.json" in row.plan.adds
    assert server.store.ids() == []


def test_a_folder_is_served_for_as_long_as_it_takes(manifest, tmp_path):
    folder = tmp_path / "local"
    publish(["scaled_add"], to=folder, manifest=manifest, dry_run=True)
    assert not folder.exists()
    (row,) = publish(["scaled_add"], to=folder, manifest=manifest, verified=True)
    assert row.plan.repo_id == "local/neuron-scaled-add"
    assert Store.existing(folder).repo(row.plan.repo_id).branches["v1"] == row.commit


def test_rights_are_tried_before_the_build(manifest, server):
    reader = server.store.tokens.add("reader", {"*": "read"}, "now")
    for token in (reader, "hf_wrong"):
        with pytest.raises(HubError):
            send(manifest, server, token=token)
    assert not manifest.build_root.exists()
    assert server.store.ids() == []


def test_one_bad_kernel_keeps_all_of_them_from_being_uploaded(manifest, server):
    kernel = manifest.kernels["shifted_add"].folder / "ops.py"
    kernel.write_text(kernel.read_text() + "\nimport numpy\n")
    with pytest.raises(FileProblems, match="numpy"):
        send(manifest, server)
    assert server.store.ids() == []


def test_a_kernel_that_does_not_match_its_reference_is_not_uploaded(manifest, server):
    kernel = manifest.kernels["scaled_add"].folder / "reference.py"
    assert "return x * scale" in kernel.read_text()
    kernel.write_text(kernel.read_text().replace("return x * scale", "return x * scale + 1"))
    with pytest.raises(FileProblems, match="scaled_add/one_tile/float32/trn2/lnc1"):
        send(manifest, server, ["scaled_add"], verified=False)
    assert server.store.ids() == []


def test_a_kernel_that_the_linter_finds_an_error_in_is_not_uploaded(manifest, server):
    kernel = manifest.kernels["shifted_add"].folder / "kernel.py"
    kernel.write_text(kernel.read_text() + "\n\ndef indices():\n    return nl.arange(128)\n")
    with pytest.raises(FileProblems, match=r"kernel\.py:\d+:12: NKI103 nl\.arange is gone"):
        send(manifest, server)
    assert server.store.ids() == []


def test_a_narrower_spec_under_the_same_version_is_refused_before_the_numeric_check(manifest, server):
    send(manifest, server, ["scaled_add"])
    before = server.store.repo("org/neuron-scaled-add").branches["v1"]
    spec = manifest.kernels["scaled_add"].folder / "spec.toml"
    spec.write_text(spec.read_text().replace('"bfloat16", "float16"]', '"bfloat16"]'))
    for dry_run in (True, False):
        with pytest.raises(HubError, match="torch-neuron: dtype float16: is gone") as error:
            send(manifest, server, ["scaled_add"], verified=False, dry_run=dry_run)
        assert error.value.hint == "publish as a new version: set version = 2 in kernel.toml"
    assert server.store.repo("org/neuron-scaled-add").branches["v1"] == before


def test_an_unknown_kernel_is_refused_before_anything_is_asked(manifest):
    with pytest.raises(UsageError, match="scaled_ad"):
        publish(["scaled_ad"], to="http://127.0.0.1:9", manifest=manifest)


@pytest.mark.slow
def test_upstream_loads_what_was_published(manifest, server, tmp_path):
    send(manifest, server, ["scaled_add"])
    code = """
import torch
from kernels import get_kernel
kernel = get_kernel("org/neuron-scaled-add", version=1)
x = torch.arange(6.0).reshape(2, 3)
print(torch.equal(kernel.scaled_add(x, 2.0), 2 * x))
"""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "KERNELS_"))}
    environment = {**kept, "HF_HOME": str(tmp_path / "home"), "HF_ENDPOINT": server.url}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("True")
