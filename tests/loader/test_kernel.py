import textwrap
import types

import pytest
import torch
from torch import nn

from kernels_neuron.errors import ArtifactError, UsageError
from kernels_neuron.loader import kernelize, report


def test_an_unknown_kernel_name_gets_a_suggestion(make_vit):
    with pytest.raises(UsageError, match="unknown kernel 'layer_norm'") as error:
        kernelize(make_vit(), kernels={"layer_norm": "org/neuron-layernorm"})
    assert error.value.hint == "did you mean 'layernorm'"


def test_a_kernel_left_out_by_the_user_is_reported_so(make_vit, standins):
    model = kernelize(make_vit(), kernels={**standins, "layernorm": None})
    assert {row.reason for row in report(model).modules if row.kind == "layernorm"} == {"user-excluded"}
    assert {row.outcome for row in report(model).modules if row.kind != "layernorm"} == {"swapped"}


def test_sources_may_be_a_function_and_is_asked_once_per_kernel(make_vit, standins):
    asked = []
    kernelize(make_vit(), sources=lambda name: asked.append(name) or standins[name])
    assert sorted(asked) == ["gemm", "layernorm", "patch_embed", "vit_attn"]


def test_a_layer_with_state_of_its_own_is_refused(make_vit, standins):
    standins["layernorm"].layers.LayerNorm.cache = {}
    with pytest.raises(ArtifactError, match="has members of its own: cache"):
        kernelize(make_vit(), sources=standins)


def layers_with(source: str):
    """Stand-ins whose LayerNorm layer is this class."""
    scope: dict = {}
    exec(textwrap.dedent(source), {"nn": nn}, scope)
    layers = types.SimpleNamespace(LayerNorm=scope["LayerNorm"])
    return {"layernorm": types.SimpleNamespace(__name__="_kernel_id", layers=layers, layernorm=None)}


LAYER = """
class LayerNorm(nn.Module):
    has_backward = False
    can_torch_compile = True
    {more}

    def forward({parameters}):
        return {result}
"""


@pytest.mark.parametrize(
    "parameters",
    ["self, input, scale", "self, x", "self, *, input", "self, *input", "self, input, **rest", "self", "input, self"],
)
def test_a_layer_that_takes_other_arguments_is_refused_with_both_signatures(parameters):
    source = LAYER.format(more="", parameters=parameters, result="0")
    with pytest.raises(ArtifactError, match=r"layer LayerNorm of _kernel_id takes \(.*the swap passes \(self, input\)"):
        kernelize(nn.Sequential(nn.LayerNorm(4)).eval(), sources=layers_with(source))


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ("def __init__(self): super().__init__()", "__init__"),
        ("def helper(self): pass", "helper"),
        ("EPS = 1e-5", "EPS"),
        ("width = property(lambda self: 4)", "width"),
    ],
)
def test_a_layer_with_members_of_its_own_is_refused_by_their_names(more, named):
    source = LAYER.format(more=more, parameters="self, input", result="input")
    with pytest.raises(ArtifactError, match=f"layer LayerNorm of _kernel_id has members of its own: {named}"):
        kernelize(nn.Sequential(nn.LayerNorm(4)).eval(), sources=layers_with(source))


def test_a_layer_may_have_a_default_and_the_two_flags():
    source = LAYER.format(more="", parameters="self, input=None", result="input * 0 + 7")
    model = kernelize(nn.Sequential(nn.LayerNorm(4)).eval(), sources=layers_with(source))
    assert model(torch.ones(1, 4)).tolist() == [[7.0] * 4]
