"""Which changes of an API description a caller may notice, and which only offer more."""

import copy

import pytest

from kernels_neuron.api import Difference, differences, parse, signature, to_bytes
from kernels_neuron.errors import ArtifactError

X, SCALE = {"name": "x", "kind": "positional"}, {"name": "scale", "kind": "positional", "default": "1.0"}
SELF = {"name": "self", "kind": "positional"}
BASE = {
    "kind": "elementwise",
    "names": ["halve", "layers"],
    "functions": {"halve": {"parameters": [X, SCALE]}},
    "layers": {"Halve": {"parameters": [SELF, X], "has_backward": False, "can_torch_compile": True}},
    "dtypes": ["float32", "bfloat16"],
    "inputs": {"x": {"shape": ["N", "H"], "dtypes": ["$dtype"], "optional": False}},
    "limits": {"H": [1, 4096]},
    "without_copy": {"x": ["contiguous", "padded"]},
    "archs": ["trn2"],
    "nki": ["0.7"],
    "tolerances": {"float32": {"text": "rtol 1e-05", "rtol": 1e-5, "atol": 0.0, "atol_of_max": False, "sums": False}},
    "rounding": "once",
}


def changed(path: str, value: object) -> dict:
    """BASE with one place set: a dotted path, or removed where the value is None."""
    api = copy.deepcopy(BASE)
    *parents, last = path.split(".")
    place = api
    for part in parents:
        place = place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return api


def test_the_same_description_has_no_difference_and_survives_its_bytes():
    assert differences(BASE, copy.deepcopy(BASE)) == []
    assert differences(BASE, parse(to_bytes(BASE))) == []


BREAKS = {
    "name gone": ("names", ["halve"]),
    "function gone": ("functions.halve", None),
    "parameter gone": ("functions.halve.parameters", [X]),
    "parameter renamed": ("functions.halve.parameters", [{**X, "name": "y"}, SCALE]),
    "parameters swapped": ("functions.halve.parameters", [SCALE, X]),
    "default changed": ("functions.halve.parameters", [X, {**SCALE, "default": "2.0"}]),
    "default gone": ("functions.halve.parameters", [X, {"name": "scale", "kind": "positional"}]),
    "made keyword only": ("functions.halve.parameters", [X, {**SCALE, "kind": "keyword"}]),
    "required parameter added": ("functions.halve.parameters", [X, SCALE, {"name": "y", "kind": "keyword"}]),
    "optional parameter in between": (
        "functions.halve.parameters",
        [X, {"name": "y", "kind": "positional", "default": "0"}, SCALE],
    ),
    "layer gone": ("layers.Halve", None),
    "forward has one more": ("layers.Halve.parameters", [SELF, X, SCALE]),
    "layer no longer compiles": ("layers.Halve.can_torch_compile", False),
    "dtype gone": ("dtypes", ["float32"]),
    "input required another shape": ("inputs.x.shape", ["H", "N"]),
    "input gone": ("inputs.x", None),
    "limit lower": ("limits.H", [1, 4095]),
    "limit starts later": ("limits.H", [2, 4096]),
    "limit where there was none": ("limits", {"H": [1, 4096], "N": [1, 10**9]}),
    "layout copied now": ("without_copy.x", ["contiguous"]),
    "chip gone": ("archs", ["trn3"]),
    "NKI version gone": ("nki", ["0.8"]),
    "tolerance looser": ("tolerances.float32.rtol", 1e-4),
    "tolerance of another form": ("tolerances.float32.atol_of_max", True),
    "tolerance gone": ("tolerances.float32", None),
    "rounding changed": ("rounding", "stages"),
}
WIDENS = {
    "name new": ("names", ["halve", "layers", "third"]),
    "optional parameter at the end": (
        "functions.halve.parameters",
        [X, SCALE, {"name": "y", "kind": "positional", "default": "0"}],
    ),
    "optional keyword": (
        "functions.halve.parameters",
        [X, SCALE, {"name": "y", "kind": "keyword", "default": "0"}],
    ),
    "layer gets a backward": ("layers.Halve.has_backward", True),
    "dtype new": ("dtypes", ["float32", "bfloat16", "float16"]),
    "input optional now": ("inputs.x.optional", True),
    "limit higher": ("limits.H", [1, 8192]),
    "limit gone": ("limits", {}),
    "layout taken now": ("without_copy", {"x": ["contiguous", "padded", "offset"], "y": ["contiguous"]}),
    "chip new": ("archs", ["trn2", "trn3"]),
    "tolerance tighter": ("tolerances.float32.rtol", 1e-6),
}


@pytest.mark.parametrize("change", BREAKS.values(), ids=BREAKS)
def test_what_narrows_or_changes_breaks(change):
    found = differences(BASE, changed(*change))
    assert found and any(one.breaks for one in found)


@pytest.mark.parametrize("change", WIDENS.values(), ids=WIDENS)
def test_what_offers_more_does_not_break(change):
    found = differences(BASE, changed(*change))
    assert found and not any(one.breaks for one in found)
    assert any(one.breaks for one in differences(changed(*change), BASE)), "and to take it back does"


def test_a_difference_shows_both_sides():
    assert differences(BASE, changed("limits.H", [1, 100])) == [Difference("limit H: 1 to 100, was 1 to 4096", True)]
    (one,) = differences(BASE, changed("functions.halve.parameters", [X]))
    assert one.text == "function halve: (x), was (x, scale=1.0)"


def test_a_signature_reads_as_python():
    rest = [{"name": "args", "kind": "variable positional"}, {"name": "eps", "kind": "keyword", "default": "0"}]
    assert signature([X, *rest, {"name": "kw", "kind": "variable keyword"}]) == "(x, *args, eps=0, **kw)"
    assert signature([X, rest[1]]) == "(x, *, eps=0)"


@pytest.mark.parametrize(("data", "said"), [(b"{", "not JSON"), (b"[]", "schema has to be 1, got None"),
                                            (b'{"schema": 2}', "schema has to be 1, got 2")])  # fmt: skip
def test_what_is_no_description_is_refused(data, said):
    with pytest.raises(ArtifactError, match=said):
        parse(data)
