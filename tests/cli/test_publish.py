"""`kernels-neuron publish`: what it prints and how it exits."""

import json
import os
import socket
import subprocess

import pytest

from kernels_neuron.builder import scaffold
from kernels_neuron.cli.main import run
from kernels_neuron.hub.serving import run_server


@pytest.fixture
def project(tmp_path, monkeypatch):
    project = tmp_path / "project"
    project.mkdir()
    scaffold("scaled_add", project)
    monkeypatch.chdir(project)
    monkeypatch.setenv("HF_ENDPOINT", "put back afterwards")
    monkeypatch.delenv("HF_ENDPOINT")
    return project


def test_publish_goes_to_the_local_registry_and_says_what_it_did(project, capsys):
    assert run(["publish", "--owner", "org", "--dry-run"]) == 0
    assert "dry run: nothing was uploaded" in capsys.readouterr().out
    assert not (project / "registry").exists()
    assert run(["publish", "--owner", "org", "--json", "--verified"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["repo_id"], row["branch"], row["changed"]) == ("org/neuron-scaled-add", "v1", True)
    spec = project / "nki_src" / "scaled_add" / "spec.toml"
    spec.write_text(spec.read_text() + "\n[limits]\nH = [1, 100000]\n")
    assert run(["publish", "--owner", "org", "--verified"]) == 1
    assert "torch-cpu: limit H: 1 to 100000, was none" in capsys.readouterr().err
    spec.write_text(spec.read_text().partition("\n[limits]")[0])
    assert run(["publish", "--owner", "org"]) == 0
    out, err = capsys.readouterr()
    assert row["commit"][:10] in out and "same" in out
    assert "scaled_add: read back" in err


def test_publish_to_a_server_takes_the_token_from_hf_token(project, tmp_path, capsys, monkeypatch):
    with run_server(tmp_path / "registry") as server:
        monkeypatch.setenv("HF_TOKEN", "hf_wrong")
        assert run(["publish", "--to", server.url, "--json"]) == 1
        assert json.loads(capsys.readouterr().out)["hint"] == "set HF_TOKEN to a token of that server"
        monkeypatch.setenv("HF_TOKEN", server.token)
        assert run(["publish", "--to", server.url, "--verified"]) == 0
        assert server.store.ids() == ["local/neuron-scaled-add"]
        assert os.environ["HF_ENDPOINT"] == server.url, "or huggingface.co would be asked a question once a day"


def test_a_registry_that_is_down_is_one_clear_error_before_the_build(project, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert run(["publish", "--to", f"http://127.0.0.1:{unused.getsockname()[1]}"]) == 1
    err = capsys.readouterr().err
    assert "error: no Hub answers at" in err and "hint: start one with kernels-neuron registry serve" in err
    assert not (project / "build").exists()


def test_publish_signs_with_a_key_and_shows_the_line_to_trust(project, capsys):
    key = project / "key.pem"
    assert run(["publish", "--sign", str(key), "--verified"]) == 2
    assert "there is no key file" in capsys.readouterr().err
    made = subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(key)], check=False)
    if made.returncode:
        pytest.skip("there is no openssl here that makes Ed25519 keys")
    assert run(["publish", "--sign", str(key), "--verified", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "signatures/torch-neuron.json" in json.loads(out)[0]["adds"]
    assert "sign with ed25519 " in err
