"""report.json and report.html, from answers made by hand."""

import dataclasses
import json
import xml.etree.ElementTree as ElementTree

import pytest

from kernels_neuron.flows.classify import Answer
from kernels_neuron.flows.demo_report import LAYER_REL_L2, LOGITS_REL_L2, make_report, problems_in
from kernels_neuron.flows.digits import load_digits
from kernels_neuron.flows.layer_times import LayerTime
from kernels_neuron.flows.report_html import render

REGISTRY = {"url": "http://127.0.0.1:1234", "repos": ["demo/neuron-layernorm@v1"]}
RUN = {"chip": "trn2", "batch": 60}
PROMISED = {"images", "accuracy_before", "accuracy_after", "predictions_equal", "logits_rel_l2", "flop_share_swapped"}
PROMISED |= {"instructions", "modules", "speedups"}


def module_row(path, kind, outcome, **values):
    row = {"path": path, "kind": kind, "outcome": outcome, "reason": "", "kernel": "layernorm", "kernel_id": "_id"}
    return row | {"kernel_digest": "ab12", "calls": 6, "fallbacks": {}, "rel_l2": None, "model_rel_l2": None} | values


def module_rows(rel_l2):
    return [
        module_row("vit.layernorm", "layernorm", "swapped", model_rel_l2=rel_l2, rel_l2=1e-9),
        module_row("vit.pooler", "other", "kept", reason="class-not-listed", kernel=""),
    ]


def answer(dtype, **changes):
    classes = load_digits().test_labels.tolist()
    classes[0] = (classes[0] + 1) % 10  # one image is classified wrongly, before and after
    made = Answer(
        before=classes,
        after=list(classes),
        logits_rel_l2=LOGITS_REL_L2[dtype] / 2,
        flop_share_swapped=0.99,
        instructions=1000,
        modules=module_rows(LAYER_REL_L2[dtype] / 2),
        times=[LayerTime("vit.layernorm", "layernorm", 10.0, 25.0, 1, 2, 5.0, {"vector": 8.0, "scalar": 2.0})],
        versions={"torch": "2.13.0"},
    )
    return dataclasses.replace(made, **changes)


def answers(**changes):
    return {"float32": answer("float32"), "bfloat16": answer("bfloat16", **changes)}


def test_the_report_has_every_promised_field_and_is_json():
    report = make_report(answers(), REGISTRY, RUN)
    assert set(report) >= PROMISED
    assert json.loads(json.dumps(report)) == report
    assert report["ok"] and report["problems"] == []
    assert report["predictions_equal"] is True
    assert report["accuracy_before"] == pytest.approx(359 / 360)
    assert report["instructions"] == 2000
    [row] = report["speedups"]
    assert row["layer"] == "vit.layernorm" and row["speedup"] == 2.5 and row["speedup_with_launch"] == 35 / 15
    assert report["modules"][1]["reason"] == "class-not-listed" and report["modules"][0]["reason"] is None


def test_samples_show_the_images_that_are_classified_wrongly():
    report = make_report(answers(), REGISTRY, RUN)
    assert any(sample["before"] != sample["label"] for sample in report["samples"])
    assert len({sample["index"] for sample in report["samples"]}) == 24


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"after": [0] * 360}, "not all predictions are equal"),
        ({"logits_rel_l2": 0.5}, "bfloat16: logits are off by 5.0e-01, limit 1e-02"),
        ({"logits_rel_l2": float("nan")}, "bfloat16: logits are off by nan, limit 1e-02"),
        ({"flop_share_swapped": 0.5}, "50.0% of the FLOPs ran in kernels, below 90%"),
        ({"instructions": 0}, "no instruction was simulated"),
        ({"modules": module_rows(0.5)}, "bfloat16: vit.layernorm is off by 5.0e-01, limit 1e-02"),
        ({"modules": module_rows(None)}, "bfloat16: vit.layernorm was not checked"),
    ],
    ids=["predictions", "logits", "logits-nan", "flops", "instructions", "layer", "unchecked-layer"],
)
def test_a_number_outside_its_limit_is_a_problem(changes, problem):
    report = make_report(answers(**changes), REGISTRY, RUN)
    assert not report["ok"] and problem in report["problems"]


def test_accuracy_below_the_limit_is_a_problem():
    report = make_report(answers(), REGISTRY, RUN)
    assert problems_in(report | {"accuracy_after": 0.9}) == ["accuracy 0.9000 is below 0.96"]


def test_an_answer_survives_the_way_through_json():
    made = answer("float32")
    assert Answer.from_json(json.loads(json.dumps(dataclasses.asdict(made)))) == made


def test_the_page_stands_alone_and_says_what_is_estimated():
    report = make_report(answers(), REGISTRY, RUN)
    page = render(report, {"logits": LOGITS_REL_L2, "layers": LAYER_REL_L2})
    assert page.count("<svg") == 4 and "<script" not in page and 'src="http' not in page
    assert "Nothing in this section was measured on a device" in page
    assert "class-not-listed" in page and "demo/neuron-layernorm@v1" in page and "ab12" not in page[:200]
    for svg in page.split("<svg")[1:]:
        ElementTree.fromstring("<svg" + svg.split("</svg>")[0] + "</svg>")


def test_the_page_is_the_same_for_the_same_report():
    report = make_report(answers(), REGISTRY, RUN)
    limits = {"logits": LOGITS_REL_L2, "layers": LAYER_REL_L2}
    assert render(report, limits) == render(report, limits)


def test_the_page_escapes_what_it_is_given():
    report = make_report(answers(), REGISTRY | {"repos": ["<b>demo</b>"]}, RUN)
    assert "<b>demo</b>" not in render(report, {"logits": LOGITS_REL_L2, "layers": LAYER_REL_L2})
