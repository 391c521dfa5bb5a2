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


def test_a_token_is_printed_once_listed_without_its_secret_and_can_be_revoked(store, capsys):
    root = ["--root", str(store.root)]
    argv = ["registry", "token", "ci", *root, "--write", "org", "--read", "lab/relu", "--read", "team"]
    assert run(argv) == 0
    secret = capsys.readouterr().out.strip()
    grants = {"org": "write", "lab/relu": "read", "team": "read"}
    assert Store(store.root).tokens.find(secret).grants == grants
    assert run(["registry", "tokens", *root]) == 0
    shown = capsys.readouterr().out
    assert "ci    lab/relu  read" in shown and secret not in shown
    assert run(["registry", "tokens", *root, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["user"], row["grants"]) == ("ci", grants) and "sha256" not in row
    assert run(argv) == 1
    assert "revoke it first" in capsys.readouterr().err
    assert run([*argv, "--revoke"]) == 0
    assert Store(store.root).tokens.find(secret) is None
    assert run([*argv, "--revoke"]) == 2
    assert run(["registry", "token", "x", *root]) == 2
    assert "at least one right" in capsys.readouterr().err
    assert run(["registry", "token", "x", *root, "--write", "a/b/c"]) == 1
    assert "a/b/c" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["list", "verify"])
def test_a_folder_without_a_registry_is_one_clear_error(tmp_path, capsys, verb):
    assert run(["registry", verb, "--root", str(tmp_path / "no"), "--json"]) == 1
    assert "there is no registry in" in json.loads(capsys.readouterr().out)["error"]
    assert not (tmp_path / "no").exists()


def test_gc_says_what_it_removed_and_a_dry_run_removes_nothing(tmp_path, capsys):
    store = Store(tmp_path)
    with store.blobs.batch() as batch:
        blob = batch.put(b"named by nothing")
    assert run(["registry", "gc", "--root", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"blobs": 0, "size": 0, "young": 1}
    assert run(["registry", "gc", "--root", str(tmp_path), "--grace", "0", "--dry-run"]) == 0
    assert "1 contents would be removed, 16 bytes" in capsys.readouterr().out
    assert store.blobs.path(blob.sha256).is_file()
    assert run(["registry", "gc", "--root", str(tmp_path), "--grace", "0"]) == 0
    assert not store.blobs.path(blob.sha256).is_file()
