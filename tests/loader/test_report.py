import copy
import json

import pytest
import torch

from kernels_neuron.errors import UsageError
from kernels_neuron.loader import kernelize, report, unkernelize


def test_the_report_is_json_and_holds_every_module_with_its_kernel(make_vit, images, standins):
    model = kernelize(make_vit(), sources=standins)
    assert report(model).flop_share is None
    with torch.no_grad():
        model(images)
    value = json.loads(json.dumps(report(model).to_dict()))
    assert value["modules_swapped"] == value["modules_total"] == 23
    assert value["module_share"] == value["flop_share"] == 1.0
    row = next(m for m in value["modules"] if m["path"] == "classifier")
    assert row["class_name"] == "Linear"
    assert row["kernel"] == "gemm"
    assert row["kernel_id"] == "_neuron_gemm_neuron_standin000"
    assert row["flops"] == 2 * 3 * 32 * 10
    assert value["versions"]["transformers"]


def test_flops_count_each_product_once(make_vit, images, standins):
    model = kernelize(make_vit(), sources=standins)
    with torch.no_grad():
        model(images)
    rows, width, hidden = 3 * 17, 32, 64
    layer = 2 * rows * (4 * width * width + 2 * width * hidden) + 4 * 3 * 17 * 17 * width
    patches = 2 * 3 * 16 * 4 * width
    assert report(model).flops == 2 * layer + patches + 2 * 3 * width * 10


def test_fallbacks_count_against_the_share(make_vit, images, make_standins):
    model = kernelize(make_vit(), sources=make_standins(max_rows=20))
    with torch.no_grad():
        model(images)
    share = report(model).flop_share
    attention = sum(row.flops for row in report(model).modules if row.kind == "attention")
    classifier = 2 * 3 * 32 * 10
    assert share == pytest.approx((attention + classifier) / report(model).flops)


def test_kept_products_count_against_the_share(make_vit, images, standins):
    whole = kernelize(make_vit(), sources=standins)
    part = kernelize(make_vit(), kernels={**standins, "gemm": None, "vit_attn": None})
    with torch.no_grad():
        whole(images), part(images)
    assert report(part).flops == report(whole).flops
    assert report(part).flop_share < 0.02


def test_the_table_reads_without_colour_and_ends_with_the_shares(make_vit, standins):
    lines = str(report(kernelize(make_vit(), sources=standins))).splitlines()
    assert lines[0].split() == ["module", "class", "kind", "outcome", "kernel", "or", "reason", "calls", "fell", "back"]
    assert lines[-1] == "ViTForImageClassification: 23 of 23 modules swapped, no calls yet"
    assert "\x1b" not in "".join(lines)


def test_a_plain_model_has_no_report(make_vit, standins):
    model = make_vit()
    for plain in (model, unkernelize(kernelize(copy.deepcopy(model), sources=standins))):
        with pytest.raises(UsageError, match="ViTForImageClassification is not kernelized"):
            report(plain)
