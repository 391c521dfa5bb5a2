import json

import pytest
import torch

from kernels_neuron.errors import UsageError
from kernels_neuron.loader import check_model, kernelize, report


def test_exact_kernels_have_no_error_in_float32(make_vit, images, standins):
    model = kernelize(make_vit(), sources=standins)
    found = check_model(model, images)
    assert len(found.modules) == 21
    assert found.modules[0].path == "vit.embeddings.patch_embeddings.projection"
    assert found.modules[-1].path == "classifier"
    assert max(m.rel_l2 for m in found.modules) < 1e-6
    assert found.output_rel_l2 < 1e-6 and found.argmax_equal
    assert found.first_beyond(1e-5) is None


def test_one_wrong_kernel_is_found_at_its_layers_and_nowhere_else(make_vit, images, standins, make_standins):
    wrong = {**standins, "vit_attn": make_standins(nudge=0.05)["vit_attn"]}
    found = check_model(kernelize(make_vit(), sources=wrong), images)
    assert {m.path for m in found.modules if m.rel_l2 > 1e-5} == {f"vit.layers.{i}.attention" for i in (0, 1)}
    assert found.first_beyond(1e-5).path == "vit.layers.0.attention"
    assert found.worst.kind == "attention"
    # what follows has the right answer to a wrong input
    after = next(m for m in found.modules if m.path == "vit.layers.0.mlp.fc2")
    assert after.rel_l2 < 1e-6 < 1e-4 < after.model_rel_l2


@pytest.mark.parametrize("kernel", ["layernorm", "gemm", "patch_embed"])
def test_each_kernels_error_is_seen(make_vit, images, standins, make_standins, kernel):
    found = check_model(kernelize(make_vit(), sources={**standins, kernel: make_standins(nudge=0.05)[kernel]}), images)
    assert {m.rel_l2 > 1e-4 for m in found.modules if m.kind == found.worst.kind} == {True}


def test_bfloat16_is_compared_with_the_float32_original(make_vit, images, standins):
    model = kernelize(make_vit().to(torch.bfloat16), sources=standins)
    found = check_model(model, images.to(torch.bfloat16))
    assert 1e-4 < found.worst.rel_l2 < 2e-2
    assert found.output_rel_l2 > 1e-4


def test_the_check_leaves_counts_alone_and_shows_in_the_report(make_vit, images, make_standins):
    model = kernelize(make_vit(), check={"pixel_values": images}, sources=make_standins(nudge=0.01))
    rows = {row.path: row for row in report(model).modules}
    assert {row.calls for row in rows.values()} == {0}
    assert rows["classifier"].rel_l2 > 1e-4
    assert rows["vit.layers.0.mlp.fc1"].model_rel_l2 >= rows["vit.layers.0.layernorm_before"].rel_l2
    assert "rel l2" in str(report(model))


def test_the_check_report_prints_and_serializes(make_vit, images, standins):
    found = check_model(kernelize(make_vit(), sources=standins), (images,))
    assert json.loads(json.dumps(found.to_dict()))["modules"][0]["calls"] == 1
    assert "argmax equal" in str(found)


def test_a_call_that_falls_back_is_not_called_right(make_vit, images, make_standins):
    found = check_model(kernelize(make_vit(), sources=make_standins(max_rows=20)), images)
    assert {m.kind for m in found.modules} == {"attention", "linear"}


def test_what_cannot_be_checked_says_why(make_vit, images, standins):
    with pytest.raises(UsageError, match="no swapped module to check"):
        check_model(make_vit(), images)
    model = kernelize(make_vit(), sources=standins)
    with pytest.raises(UsageError, match="inputs are a tensor, a tuple or a dict, got str"):
        check_model(model, "image.png")
    with pytest.raises(UsageError, match="eval mode"):
        check_model(model.train(), images)


def test_the_original_may_have_weights_that_were_not_rounded(make_vit, images, standins):
    model = kernelize(make_vit().to(torch.bfloat16), sources=standins)
    x = images.to(torch.bfloat16)
    rounded, whole = check_model(model, x), check_model(model, x, original=make_vit())
    assert whole.modules[0].rel_l2 == rounded.modules[0].rel_l2
    assert whole.modules[0].model_rel_l2 > rounded.modules[0].model_rel_l2
