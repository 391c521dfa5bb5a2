"""gc removes what no commit names and nothing else."""

import os
import time

import pytest

from kernels_neuron.hub.storage.collect import collect
from kernels_neuron.hub.storage.damage import find_damage
from kernels_neuron.hub.storage.faults import Damaged
from kernels_neuron.hub.store import Message, Put, Store


@pytest.fixture
def store(tmp_path):
    made = Store(tmp_path)
    for name in ("org/kept", "org/gone"):
        made.create(name, author="x")
        with made.blobs.batch() as batch:
            puts = [Put("shared", batch.put(b"shared")), Put("own", batch.put(name.encode()))]
        made.add_commit(name, "main", puts, Message("m", "x"))
    return made


def age(store, seconds: float = 7200.0) -> None:
    then = time.time() - seconds
    for path in store.blobs:
        os.utime(path, (then, then))


def contents(store) -> set[bytes]:
    return {path.read_bytes() for path in store.blobs}


def test_only_what_no_commit_names_goes(store):
    age(store)
    assert collect(store).blobs == 0
    store.delete("org/gone")
    dry = collect(store, dry_run=True)
    assert (dry.blobs, dry.size) == (1, len(b"org/gone")) and len(contents(store)) == 3
    assert collect(store).blobs == 1
    assert contents(store) == {b"shared", b"org/kept"}
    assert find_damage(store) == []


def test_what_an_old_commit_names_stays_since_a_lock_may_name_it(store):
    with store.blobs.batch() as batch:
        store.add_commit("org/kept", "main", [Put("own", batch.put(b"new"))], Message("m", "x"))
    age(store)
    assert collect(store).blobs == 0 and b"org/kept" in contents(store)


def test_what_is_young_stays_since_a_commit_may_be_on_its_way(store):
    age(store)
    with store.blobs.batch() as batch:
        batch.put(b"uploading")
    done = collect(store)
    assert (done.blobs, done.young) == (0, 1) and b"uploading" in contents(store)
    assert collect(store, grace_seconds=-1).blobs == 1


def test_nothing_goes_where_a_commit_cannot_be_read(store):
    store.delete("org/gone")
    age(store)
    next((store.root / "repos/org/kept/commits").glob("*.json")).write_text("{}")
    with pytest.raises(Damaged, match="its bytes have changed"):
        collect(store)
    assert len(contents(store)) == 3
