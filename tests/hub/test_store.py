"""The store: what a commit does to a branch, what it refuses, and what is on disk afterwards."""

import threading
from pathlib import Path

import pytest

from kernels_neuron.errors import HubError
from kernels_neuron.hub.storage.damage import find_damage
from kernels_neuron.hub.storage.faults import (
    AlreadyThere,
    Damaged,
    EntryMissing,
    Refused,
    RepoMissing,
    RevisionMissing,
    StaleParent,
)
from kernels_neuron.hub.store import Drop, Message, Put, Store

BY = Message("change", "tester")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "registry")
    store.create("org/relu", author="tester")
    return store


def put(store: Store, path: str, data: bytes) -> Put:
    with store.blobs.batch() as batch:
        return Put(path, batch.put(data))


def commit(store: Store, *operations, ref="main", **kwargs):
    return store.add_commit("org/relu", ref, operations, BY, **kwargs)


def files(store: Store, revision: str = "main") -> dict[str, bytes]:
    found = store.commit(store.repo("org/relu"), revision)
    return {path: store.blobs.path(blob.sha256).read_bytes() for path, blob in found.files.items()}


def test_a_commit_moves_only_its_own_branch(store):
    store.create_branch("org/relu", "v1")
    commit(store, put(store, "a/b.py", b"x"), ref="v1")
    assert files(store, "v1") == {"a/b.py": b"x"}
    assert files(store, "main") == {}


def test_a_commit_stays_readable_by_its_id_after_the_branch_moved_on(store):
    first = commit(store, put(store, "a", b"1"))
    commit(store, put(store, "a", b"2"))
    assert files(store, first.id) == {"a": b"1"}
    assert files(store) == {"a": b"2"}


def test_operations_that_change_nothing_make_no_commit(store):
    first = commit(store, put(store, "a", b"1"))
    again = commit(store, put(store, "a", b"1"))
    assert again.id == first.id
    assert len(list(store.history(store.repo("org/relu"), "main"))) == 2


def test_operations_apply_in_their_order(store):
    commit(store, put(store, "d/old", b"1"), put(store, "keep", b"2"))
    commit(store, Drop("d/", folder=True), put(store, "d/new", b"3"))
    assert files(store) == {"d/new": b"3", "keep": b"2"}


def test_dropping_what_is_not_there_is_refused_and_nothing_changes(store):
    commit(store, put(store, "d/a", b"1"))
    for missing in (Drop("nope"), Drop("d"), Drop("nope/", folder=True)):
        with pytest.raises(EntryMissing, match="A file with this name doesn't exist"):
            commit(store, put(store, "b", b"2"), missing)
    assert files(store) == {"d/a": b"1"}


def test_a_stale_parent_is_refused_and_a_right_one_is_taken(store):
    first = commit(store, put(store, "a", b"1"))
    commit(store, put(store, "a", b"2"), parent=first.id)
    with pytest.raises(StaleParent):
        commit(store, put(store, "a", b"3"), parent=first.id)
    assert files(store) == {"a": b"2"}


def test_of_many_racing_commits_with_one_parent_exactly_one_wins(store):
    start = commit(store, put(store, "start", b"0"))
    won, lost = [], []

    def race(number: int) -> None:
        try:
            won.append(commit(store, put(store, f"f{number}", b"x"), parent=start.id).id)
        except StaleParent:
            lost.append(number)

    threads = [threading.Thread(target=race, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1 and len(lost) == 7
    assert len(files(store)) == 2


def test_racing_commits_without_a_parent_all_arrive(store):
    threads = [threading.Thread(target=commit, args=(store, put(store, f"f{i}", b"x"))) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(files(store)) == [f"f{i}" for i in range(8)]


def test_paths_that_one_file_system_would_take_for_one_are_refused(store):
    commit(store, put(store, "Build/a", b"1"))
    for path in ("build/b", "BUILD/a", "Build", "Build/a/b"):
        with pytest.raises(Refused, match=r"differs from|needs a folder"):
            commit(store, put(store, path, b"2"))
    assert files(store) == {"Build/a": b"1"}


def test_an_admission_rule_that_refuses_leaves_the_branch_alone(store):
    def refuse(repo_id, ref, before, after):
        raise Refused("not today")

    with pytest.raises(Refused, match="not today"):
        commit(store, put(store, "a", b"1"), admit=refuse)
    assert files(store) == {}


def test_a_pull_request_is_kept_beside_the_branch(store):
    number, made = store.add_pull("org/relu", "main", [put(store, "a", b"1")], BY)
    assert files(store, f"refs/pr/{number}") == {"a": b"1"}
    assert files(store, made.id) == {"a": b"1"}
    assert files(store) == {}


def test_revisions_are_found_by_every_name_a_client_uses(store):
    store.create_branch("org/relu", "feat/x")
    made = commit(store, put(store, "a", b"1"), ref="feat/x")
    store.create_tag("org/relu", "release", "feat/x")
    repo = store.repo("org/relu")
    for revision in ("feat/x", "refs/heads/feat/x", "release", "refs/tags/release", made.id):
        assert store.resolve(repo, revision) == made.id
    for revision in ("nope", "refs/heads/release", "0" * 40, made.id[:10], "../main"):
        with pytest.raises(RevisionMissing):
            store.resolve(repo, revision)


def test_a_commit_of_another_repo_is_not_found(store):
    store.create("org/gelu", author="tester")
    made = commit(store, put(store, "secret", b"1"))
    with pytest.raises(RevisionMissing):
        store.commit(store.repo("org/gelu"), made.id)


def test_branches_are_made_once_and_deleted_but_for_main(store):
    store.create_branch("org/relu", "v1")
    with pytest.raises(AlreadyThere):
        store.create_branch("org/relu", "v1")
    store.delete_branch("org/relu", "v1")
    with pytest.raises(RevisionMissing):
        store.delete_branch("org/relu", "v1")
    with pytest.raises(Refused):
        store.delete_branch("org/relu", "main")


def test_a_repo_is_made_once_moved_and_deleted(store):
    with pytest.raises(AlreadyThere):
        store.create("org/relu", author="tester")
    commit(store, put(store, "a", b"1"))
    store.move("org/relu", "other/relu2")
    assert store.ids() == ["other/relu2"]
    assert list(store.commit(store.repo("other/relu2"), "main").files) == ["a"]
    store.delete("other/relu2")
    assert store.ids() == []
    with pytest.raises(RepoMissing):
        store.repo("other/relu2")


def test_repo_ids_that_differ_only_by_case_are_refused(store):
    for repo_id in ("org/Relu", "Org/gelu"):
        with pytest.raises(Refused, match="only by case"):
            store.create(repo_id, author="tester")


def test_what_was_written_is_there_for_the_next_process_and_nothing_else(store):
    commit(store, put(store, "a", b"1"))
    (store.root / "scratch" / "half.part").write_bytes(b"torn")
    (store.root / "scratch" / "halfrepo").mkdir()
    reopened = Store(store.root)
    assert reopened.recover() == 2
    assert list((store.root / "scratch").iterdir()) == []
    assert files(reopened) == {"a": b"1"}
    assert find_damage(reopened) == []


def test_a_newer_layout_is_refused(store):
    (store.root / "format").write_text("kernels-neuron registry 9\n")
    with pytest.raises(Damaged, match="registry 9"):
        Store(store.root)


def test_a_folder_without_a_registry_is_not_made_into_one_by_reading(tmp_path):
    with pytest.raises(HubError, match="there is no registry"):
        Store.existing(tmp_path / "typo")
    assert not (tmp_path / "typo").exists()


def test_a_blob_truncated_on_disk_is_healed_by_the_next_upload(store):
    made = put(store, "a", b"content")
    path = store.blobs.path(made.blob.sha256)
    path.write_bytes(b"con")
    put(store, "a", b"content")
    assert path.read_bytes() == b"content"
