"""`registry verify`: exactly the planted damage is named."""

import pytest

from kernels_neuron.hub.storage.damage import find_damage
from kernels_neuron.hub.store import Message, Put, Store


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    store.create("org/relu", author="tester")
    with store.blobs.batch() as batch:
        operations = [Put(f"f{i}", batch.put(b"content %d" % i)) for i in range(3)]
    store.add_commit("org/relu", "main", operations, Message("files", "tester"))
    return store


def blob_of(store, path):
    return store.blobs.path(store.commit(store.repo("org/relu"), "main").files[path].sha256)


def test_a_whole_registry_has_no_damage(store):
    assert find_damage(store) == []


def test_a_changed_blob_is_named_with_the_file_it_holds(store):
    blob = blob_of(store, "f1")
    blob.write_bytes(blob.read_bytes()[::-1])
    (line,) = find_damage(store)
    assert line.startswith("org/relu f1: blob ") and blob.name in line


def test_a_missing_blob_is_named(store):
    blob_of(store, "f2").unlink()
    (line,) = find_damage(store)
    assert line.startswith("org/relu f2: ") and line.endswith("is missing")


def test_a_blob_that_no_commit_uses_is_checked_too(store):
    with store.blobs.batch() as batch:
        orphan = store.blobs.path(batch.put(b"orphan").sha256)
    orphan.write_bytes(b"orphaN")
    (line,) = find_damage(store)
    assert orphan.name in line


def test_a_changed_commit_is_named_and_its_readers_are_refused(store):
    head = store.repo("org/relu").branches["main"]
    path = store.root / "repos/org/relu/commits" / f"{head}.json"
    path.write_bytes(path.read_bytes().replace(b"f1", b"fX"))
    (line,) = find_damage(Store(store.root))
    assert head in line and "changed" in line


def test_a_missing_commit_is_named(store):
    head = store.repo("org/relu").branches["main"]
    (store.root / "repos/org/relu/commits" / f"{head}.json").unlink()
    assert find_damage(Store(store.root)) == [f"org/relu main: commit {head} is missing"]


def test_a_record_of_refs_that_cannot_be_read_is_named(store):
    (store.root / "repos/org/relu/repo.json").write_text("{}")
    (line,) = find_damage(store)
    assert line.startswith("org/relu: ")
