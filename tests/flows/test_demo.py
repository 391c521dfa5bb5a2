"""The demo as a whole, and its consumer when the registry is not there."""

import json
import socket

import pytest

from kernels_neuron.cli.main import run as run_command
from kernels_neuron.errors import KernelsNeuronError
from kernels_neuron.flows import demo
from kernels_neuron.flows.classify import Question

KINDS = {"attention", "layernorm", "linear", "linear-gelu", "activation", "patch-embedding"}


@pytest.mark.slow
def test_a_registry_that_is_down_is_one_clear_error(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    question = Question({"layernorm": "demo/neuron-layernorm@v1"}, "float32", 60, "trn2")
    with pytest.raises(KernelsNeuronError, match="the consumer in float32: ") as caught:
        demo._consumer(question, url, tmp_path / "cache", lambda done, of: None)
    assert "Traceback" not in str(caught.value) and caught.value.hint


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(tmp_path, capsys):
    (tmp_path / "out").write_text("a file where the folder should be")
    assert run_command(["demo", "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.startswith(f"error: {tmp_path / 'out'}: ")


def test_the_consumer_inherits_no_hub_settings(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("KERNELS_NEURON_SIM", "1")
    seen = demo._environment("http://127.0.0.1:1", tmp_path)
    assert "HF_TOKEN" not in seen and "HF_HUB_OFFLINE" not in seen
    assert seen["HF_ENDPOINT"] == "http://127.0.0.1:1" and seen["KERNELS_NEURON_SIM"] == "1"


@pytest.mark.slow
def test_the_demo_shows_what_it_claims(tmp_path, capsys):
    assert run_command(["demo", "--out", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / "report.json").read_text())
    assert report["images"] == 360 and report["predictions_equal"] is True
    assert report["accuracy_before"] >= 0.96 and report["flop_share_swapped"] >= 0.9
    assert report["logits_rel_l2"]["float32"] <= 2e-5 and report["logits_rel_l2"]["bfloat16"] <= 1e-2
    swapped = [row for row in report["modules"] if row["outcome"] == "swapped"]
    assert {row["kind"] for row in swapped} == KINDS
    assert all(row["calls"] and not row["fallbacks"] for row in swapped)
    own = [row for row in swapped if row["kind"] != "activation"]  # an activation runs inside a product
    assert all(set(row["rel_l2"]) == {"float32", "bfloat16"} for row in own)
    assert {row["layer"] for row in report["speedups"]} == {row["path"] for row in own}
    assert all(row["estimated_us"] > 0 and row["baseline_us"] > 0 for row in report["speedups"])
    page = (tmp_path / "report.html").read_text()
    assert "360 held-out images" in page
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]
