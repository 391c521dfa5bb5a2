"""`kernels-neuron registry`: what it prints and how it exits."""

import json

import pytest

from kernels_neuron.cli.main import run
from kernels_neuron.hub.store import Message, Put, Store


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "registry")
    store.create("org/relu", author="tester")
    store.create_branch("org/relu", "v1")
    with store.blobs.batch() as batch:
        puts = [Put("build/torch-cpu/a.py", batch.put(b"1")), Put("build/torch-neuron/a.py", batch.put(b"22"))]
    store.add_commit("org/relu", "v1", puts, Message("x", "tester"))
    return store


def test_list_prints_versions_and_variants(store, capsys):
    assert run(["registry", "list", "--root", str(store.root)]) == 0
    assert "org/relu  v1      torch-cpu, torch-neuron" in capsys.readouterr().out
    assert run(["registry", "list", "--root", str(store.root), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["branch"], row["variants"], row["size"]) == ("v1", ["torch-cpu", "torch-neuron"], 3)


def test_verify_exits_1_exactly_where_something_is_damaged(store, capsys):
    argv = ["registry", "verify", "--root", str(store.root)]
    assert run(argv) == 0
    assert "1 repos read, 0 things damaged" in capsys.readouterr().out
    blob = next(iter(store.blobs))
    blob.write_bytes(b"x")
    assert run(argv) == 1
    assert blob.name in capsys.readouterr().out
    assert run([*argv, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["ok"] is False


def test_a_token_is_printed_once_and_can_be_revoked(store, capsys):
    argv = ["registry", "token", "ci", "--root", str(store.root), "--role", "read"]
    assert run(argv) == 0
    secret = capsys.readouterr().out.strip()
    assert Store(store.root).tokens.find(secret).role == "read"
    assert run(argv) == 1
    assert "revoke it first" in capsys.readouterr().err
    assert run([*argv, "--revoke"]) == 0
    assert Store(store.root).tokens.find(secret) is None
    assert run([*argv, "--revoke"]) == 2


@pytest.mark.parametrize("verb", ["list", "verify"])
def test_a_folder_without_a_registry_is_one_clear_error(tmp_path, capsys, verb):
    assert run(["registry", verb, "--root", str(tmp_path / "no"), "--json"]) == 1
    assert "there is no registry in" in json.loads(capsys.readouterr().out)["error"]
    assert not (tmp_path / "no").exists()
