"""api.json says what the sources and spec.toml say."""

import json
from pathlib import Path

import pytest

from kernels_neuron.api import differences, parse
from kernels_neuron.artifact import Metadata
from kernels_neuron.builder import build, check
from kernels_neuron.errors import FileProblems


def api_of(project, variant: str = "torch-neuron") -> dict:
    (built,) = build(project)
    return parse((built.variants[variant] / "api.json").read_bytes())


def test_functions_layers_and_flags_are_read_off_the_sources(project, edit):
    edit("layers.py", "has_backward = True", 'has_backward = get_backend() == "cpu"')
    edit("layers.py", "from .ops", "from .._ops import get_backend\nfrom .ops")
    api = api_of(project)
    assert api["names"] == ["Unsupported", "halve", "layers"]
    scale = {"name": "scale", "kind": "positional", "default": "1.0"}
    assert api["functions"] == {"halve": {"parameters": [{"name": "x", "kind": "positional"}, scale]}}
    assert api["layers"]["Halve"]["has_backward"] is False
    assert api_of(project, "torch-cpu")["layers"]["Halve"]["has_backward"] is True


def test_every_kind_of_parameter_is_told_apart(project, edit):
    edit(
        "ops.py", "def halve(x: torch.Tensor, scale: float = 1.0)", "def halve(x, /, scale=1.0, *more, eps=1e-5, **kw)"
    )
    kinds = [
        (one["name"], one["kind"], one.get("default")) for one in api_of(project)["functions"]["halve"]["parameters"]
    ]
    assert kinds == [
        ("x", "positional only", None),
        ("scale", "positional", "1.0"),
        ("more", "variable positional", None),
        ("eps", "keyword", "1e-05"),
        ("kw", "variable keyword", None),
    ]


def test_the_spec_gives_dtypes_limits_layouts_chips_tolerances_and_rounding(project, edit):
    more = 'rounding = "stages"\n[limits]\nH = [1, 8192]\n[strides]\nx = ["contiguous"]\n[inputs]'
    edit("spec.toml", "[inputs]", more)
    api = api_of(project)
    assert api["dtypes"] == ["float32", "bfloat16", "float16"]
    assert api["limits"] == {"H": [1, 8192]} and api["without_copy"] == {"x": ["contiguous"]}
    assert (api["archs"], api["nki"], api["rounding"]) == (["trn2", "trn3"], ["0.7"], "stages")
    assert api["tolerances"]["bfloat16"]["rtol"] == 2**-7


def test_an_unknown_rounding_is_refused(project, edit):
    edit("spec.toml", "[inputs]", 'rounding = "onc"\n[inputs]')
    with pytest.raises(FileProblems, match="did you mean 'once'"):
        build(project)


def test_a_flag_that_only_running_would_tell_is_kept_as_its_source(project, edit):
    edit("layers.py", "has_backward = True", "has_backward = bool(torch)")
    assert api_of(project)["layers"]["Halve"]["has_backward"] == "bool(torch)"


def test_the_description_is_in_the_digest_and_in_the_id(project, edit):
    (built,) = build(project)
    before = Metadata.read(built.variants["torch-cpu"])
    assert "api.json" in before.digest
    edit("spec.toml", "[inputs]", "[limits]\nH = [1, 8192]\n[inputs]")
    assert Metadata.read(build(project)[0].variants["torch-cpu"]).id != before.id


def test_check_finds_a_description_that_was_edited(project):
    (built,) = build(project)
    file: Path = built.variants["torch-cpu"] / "api.json"
    value = json.loads(file.read_text())
    value["dtypes"] = ["float32"]
    file.write_text(json.dumps(value))
    assert any("api.json" in problem.where for problem in check(project))


def test_a_kernel_is_no_different_from_itself(project):
    assert differences(api_of(project), api_of(project)) == []
