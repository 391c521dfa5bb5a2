"""The admission rule: a variant enters a branch only whole and as its metadata.json says."""

import json

import pytest

from kernels_neuron.hub.handlers.admission import admission
from kernels_neuron.hub.storage.faults import Refused
from kernels_neuron.hub.store import Drop, Message, Put, Store


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "registry")
    store.create("org/k", author="tester")
    store.create_branch("org/k", "v1")
    return store


@pytest.fixture
def commit(store):
    def run(files: dict[str, bytes | None], ref: str = "v1"):
        with store.blobs.batch() as batch:
            operations = [Drop(path) if data is None else Put(path, batch.put(data)) for path, data in files.items()]
        return store.add_commit("org/k", ref, operations, Message("x", "tester"), admit=admission(store))

    return run


@pytest.fixture
def variant(kernel):
    root = kernel / "build" / "torch-cpu"
    return {f"build/torch-cpu/{path.name}": path.read_bytes() for path in root.iterdir()}


METADATA = "build/torch-cpu/metadata.json"


def test_a_variant_that_is_what_it_says_is_admitted(commit, variant):
    assert set(commit(variant).files) == set(variant)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"build/torch-cpu/layers.py": b"other"}, "layers.py does not match its digest"),
        ({"build/torch-cpu/extra.py": b""}, "extra.py is not in the digest"),
        ({"build/torch-cpu/.hidden": b""}, ".hidden is not in the digest"),
        ({"build/torch-cpu/sub/metadata.json": b""}, "sub/metadata.json is not in the digest"),
        ({"build/torch-cpu/x.pyc": b""}, "x.pyc is bytecode"),
        ({"build/torch-cpu/__pycache__/layers.cpython-311.py": b""}, "is bytecode"),
        ({METADATA: b"{"}, "not JSON"),
        ({METADATA: b""}, "is empty"),
        ({METADATA: b"[]"}, "has to be an object"),
        ({METADATA: b"[" * 100_000}, "not JSON"),
        ({METADATA: b'{"version": ' + b"9" * 10_000 + b"}"}, "not JSON"),
        ({METADATA: b"{}"}, "is missing"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value.replace(" ", "_"),
)
def test_a_variant_that_is_not_what_it_says_is_refused(store, commit, variant, change, said):
    with pytest.raises(Refused, match=said):
        commit({**variant, **change})
    assert store.commit(store.repo("org/k"), "v1").files == {}


def test_a_later_commit_may_not_change_one_file_alone(commit, variant):
    commit(variant)
    with pytest.raises(Refused, match=r"layers\.py does not match its digest"):
        commit({"build/torch-cpu/layers.py": b"planted"})
    with pytest.raises(Refused, match=r"layers\.py is missing"):
        commit({"build/torch-cpu/layers.py": None})


def test_a_variant_without_digest_is_refused(commit, variant):
    value = json.loads(variant[METADATA])
    del value["digest"]
    with pytest.raises(Refused, match="has no digest"):
        commit({**variant, METADATA: json.dumps(value).encode()})


def test_a_version_on_the_branch_of_another_is_refused(store, commit, variant):
    store.create_branch("org/k", "v2")
    with pytest.raises(Refused, match="says version 1, the branch is v2"):
        commit(variant, ref="v2")
    assert commit(variant, ref="main").files


def test_files_beside_variants_and_a_signature_are_free(commit, variant):
    free = {"README.md": b"x", "benchmarks/b.py": b"x", "build/README.md": b"x"}
    commit({**variant, **free, "build/torch-cpu/metadata.json.sigstore": b"{}"})


def test_a_foreign_variant_that_the_commit_does_not_touch_is_not_judged(store, commit, variant):
    with store.blobs.batch() as batch:
        foreign = [Put("build/torch-cuda/metadata.json", batch.put(b"{}"))]
    store.add_commit("org/k", "v1", foreign, Message("x", "tester"))
    commit(variant)
