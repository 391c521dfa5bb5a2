import pickle
import subprocess
import sys
import textwrap

import pytest
import torch

from kernels_neuron.errors import FileProblems, UsageError
from kernels_neuron.spec import Spec, evaluate

GOOD = """
summary = "rows scaled to a mean square of one"
entry = "scale"
source = "nobody"
dtypes = ["float32", "bfloat16"]
kind = "elementwise"
flops = "4 * N * H"
[inputs]
x = { shape = ["N", "H"], dtype = "$dtype" }
weight = { shape = ["H"], dtype = ["$dtype", "float32"], optional = true }
[limits]
H = [1, 100]
[strides]
x = ["contiguous", "padded"]
[[workload]]
name = "ragged"
N = 5
H = 7
args = { eps = 1e-6 }
layout = { x = "transposed" }
fill = { x = "rows mean=100 std=1" }
dtype = { weight = "float32" }
[[workload]]
name = "bare"
use = "bench"
N = 2
H = 3
without = ["weight"]
[[workload]]
name = "large"
use = "bench-only"
dtypes = ["bfloat16"]
N = 8
H = 100
"""
REFERENCE = """
def scale(x, weight=None, eps=1e-5):
    y = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    return y if weight is None else y * weight
"""


@pytest.fixture
def folder(tmp_path):
    def write(text=GOOD, reference=REFERENCE):
        kernel = tmp_path / "scale"
        kernel.mkdir(exist_ok=True)
        (kernel / "spec.toml").write_text(textwrap.dedent(text))
        (kernel / "reference.py").write_text(reference)
        return kernel

    return write


def problems(folder):
    with pytest.raises(FileProblems) as caught:
        Spec.read(folder)
    return caught.value.problems


def scale(x, weight=None, eps=1e-5):
    y = x * (x.square().mean(-1, keepdim=True) + eps).rsqrt()
    return y if weight is None else y * weight


def test_a_spec_is_read_into_plain_values(folder):
    spec = Spec.read(folder())
    assert spec.kernel == "scale"
    assert spec.limits == {"H": (1, 100)}
    assert spec.strides == {"x": ("contiguous", "padded")}
    assert spec.inputs["weight"].dtypes == ("$dtype", "float32")
    assert [str(case) for case in spec.cases()] == [
        "scale/ragged/float32",
        "scale/ragged/bfloat16",
        "scale/bare/float32",
        "scale/bare/bfloat16",
        "scale/large/bfloat16",
    ]


def test_cases_are_chosen_by_dtype_and_use(folder):
    spec = Spec.read(folder())
    assert [case.workload for case in spec.cases("float32", "test")] == ["ragged", "bare"]
    assert [case.workload for case in spec.cases("bfloat16", "bench")] == ["bare", "large"]
    with pytest.raises(UsageError, match="did you mean 'float32'"):
        spec.cases("float23")


def test_a_case_survives_pickling(folder):
    case = Spec.read(folder()).cases()[0]
    assert pickle.loads(pickle.dumps(case)) == case


def test_inputs_have_the_shape_dtype_and_layout_of_the_workload(folder):
    case = Spec.read(folder()).cases("bfloat16")[0]
    inputs = case.make_inputs()
    assert inputs["x"].shape == (5, 7)
    assert inputs["x"].stride() == (1, 5)
    assert inputs["x"].dtype is torch.bfloat16
    assert inputs["weight"].dtype is torch.float32
    assert case.flops == 4 * 5 * 7
    assert 90 < inputs["x"].float().mean() < 110


def test_an_optional_input_left_out_is_none(folder):
    inputs = Spec.read(folder()).cases("float32")[1].make_inputs()
    assert inputs["weight"] is None
    assert inputs["x"].shape == (2, 3)


def test_the_parameters_of_a_model_become_parameters_on_the_same_memory(folder):
    declared = 'weight = { shape = ["H"], dtype = ["$dtype", "float32"], optional = true'
    spec = folder(GOOD.replace(declared, f"{declared}, parameter = true"))
    given, left_out = Spec.read(spec).cases("float32")[:2]
    inputs = given.make_inputs()
    assert given.parameters == ("weight",) and left_out.parameters == ()
    made = given.with_parameters(inputs)
    assert type(made["weight"]) is torch.nn.Parameter and not made["weight"].requires_grad
    assert made["weight"].data_ptr() == inputs["weight"].data_ptr()
    assert made["x"] is inputs["x"]


def test_inputs_depend_on_the_seed_and_not_on_the_process(folder):
    case = Spec.read(folder()).cases("float32")[0]
    again = pickle.loads(pickle.dumps(case))
    assert torch.equal(case.make_inputs(3)["x"], again.make_inputs(3)["x"])
    assert not torch.equal(case.make_inputs(3)["x"], case.make_inputs(4)["x"])


def test_the_reference_sees_rounded_inputs_in_float64(folder):
    case = Spec.read(folder()).cases("bfloat16")[0]
    inputs = case.make_inputs()
    wide = case.reference_inputs(inputs)
    assert wide["x"].dtype is torch.float64
    assert torch.equal(wide["x"].to(torch.bfloat16), inputs["x"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_right_output_passes_and_a_wrong_one_does_not(folder, dtype):
    case = Spec.read(folder()).cases(dtype)[0]
    inputs = case.make_inputs()
    right = case.reference(scale, inputs).to(getattr(torch, dtype))
    assert case.compare(scale, inputs, right).ok
    wrong = right.clone()
    wrong[3, 2] *= 1.1
    held = case.compare(scale, inputs, wrong)
    assert not held.ok
    assert held.error > 1


def test_every_problem_is_reported_at_once_with_its_key_path(folder):
    text = GOOD.replace('kind = "elementwise"', 'kind = "elementwse"')
    text = text.replace("eps = 1e-6", "epps = 1e-6").replace("N = 5", 'N = "5"').replace("H = 100\n", "H = 101\n")
    text = text.replace('layout = { x = "transposed" }', 'layout = { x = "transposd", y = "offset" }')
    text = text.replace("rows mean=100 std=1", "rows meen=100").replace("summary =", "sumary =")
    found = problems(folder(text))
    assert found == [
        "kind: unknown kind 'elementwse', did you mean 'elementwise'",
        "workload.ragged.N: has to be an integer, got '5'",
        "workload.ragged.layout.y: unknown input 'y', there is x, weight",
        "workload.ragged.layout.x: unknown layout 'transposd', did you mean 'transposed'",
        "workload.ragged.fill.x: unknown parameter of rows 'meen', did you mean 'mean'",
        "workload.large.H: is 101, and the limits of this kernel are 1 to 100",
        "summary: is missing, and has to be a string",
        "sumary: unknown key 'sumary', did you mean 'summary'",
    ]


def test_names_are_held_against_the_signature_of_the_reference(folder):
    assert problems(folder(GOOD.replace("eps = 1e-6", "epps = 1e-6"))) == [
        "workload.ragged.args.epps: unknown parameter of scale in reference.py 'epps', did you mean 'eps'"
    ]
    assert problems(folder(GOOD.replace('entry = "scale"', 'entry = "scales"'))) == [
        "entry: unknown function of reference.py 'scales', did you mean 'scale'"
    ]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("N = 5\n", "", "workload.ragged.N: is missing, and has to be an integer"),
        ("N = 5\n", "N = 5\nK = 2\n", "workload.ragged.K: unknown letter 'K', there is N, H"),
        ('name = "bare"', 'name = "ragged"', "workload.ragged.name: is used twice"),
        (
            'without = ["weight"]',
            'without = ["x"]',
            "workload.bare.without[0]: unknown optional input 'x', there is weight",
        ),
        ('"4 * N * H"', '"4 * N / H"', "flops: '4 * N / H' is none of letters"),
        ('weight = "float32"', 'weight = "float16"', "workload.ragged.dtype.weight: unknown dtype of weight 'float16'"),
        ("H = [1, 100]", "H = [100, 1]", "limits.H: has to be [least, greatest], got [100, 1]"),
        ('use = "bench"', 'use = "benhc"', "workload.bare.use: unknown use 'benhc', did you mean 'bench'"),
        ('dtypes = ["float32", "bfloat16"]', 'dtypes = ["float32", "bf16"]', "dtypes[1]: unknown dtype 'bf16'"),
        ('x = { shape = ["N", "H"], dtype = "$dtype" }', 'x = { shape = ["N", "H"] }', "inputs.x.dtype: is missing"),
    ],
)
def test_a_wrong_value_is_named(folder, old, new, expected):
    assert old in GOOD
    assert any(problem.startswith(expected) for problem in problems(folder(GOOD.replace(old, new, 1))))


def test_a_file_that_is_no_toml_and_one_that_is_missing_are_errors(folder, tmp_path):
    assert problems(folder("summary = ")) == ["not TOML: invalid value (at end of document)"]
    with pytest.raises(UsageError, match=r"there is no .*spec\.toml"):
        Spec.read(tmp_path)


def test_loosening_needs_a_reason_and_is_marked(folder):
    looser = "[tolerance]\nbfloat16 = { rtol = 0.1 }\n[limits]"
    assert problems(folder(GOOD.replace("[limits]", looser))) == [
        "tolerance.bfloat16.rtol: 0.1 is looser than the default, and loosening needs a reason"
    ]
    spec = Spec.read(folder(GOOD.replace("[limits]", looser.replace("0.1", '0.1, reason = "sums in bfloat16"'))))
    assert spec.loose == {"bfloat16": "sums in bfloat16"}
    assert spec.cases("bfloat16")[0].loose == "sums in bfloat16"
    assert spec.cases("float32")[0].loose is None


def test_tightening_needs_no_reason(folder):
    spec = Spec.read(folder(GOOD.replace("[limits]", "[tolerance]\nfloat32 = { rtol = 1e-6 }\n[limits]")))
    assert spec.loose == {}
    assert spec.tolerances["float32"].rule.rtol == 1e-6


MATMUL = """
summary = "x @ w"
entry = "product"
source = "nobody"
dtypes = ["float32", "float16"]
kind = "matmul"
flops = "2 * M * N * K"
contraction = "K"
magnitude_args = { act = "none" }
[inputs]
x = { shape = ["M", "K"], dtype = "$dtype" }
w = { shape = ["K", "N"], dtype = "$dtype" }
[[workload]]
name = "odd"
M = 3
N = 5
K = 7
args = { act = "relu" }
"""


def product(x, w, act="none"):
    return (x @ w).relu() if act == "relu" else x @ w


def test_float32_products_are_held_to_the_roundings_of_their_sums(folder):
    case = Spec.read(folder(MATMUL, "def product(x, w, act): ...")).cases("float32")[0]
    inputs = case.make_inputs()
    ref = case.reference(product, inputs)
    expected = (7 + 2) * 2**-24 * (inputs["x"].double().abs() @ inputs["w"].double().abs())
    torch.testing.assert_close(case.allowed(product, inputs, ref), expected)


def test_float16_products_are_held_to_their_largest_value(folder):
    case = Spec.read(folder(MATMUL, "def product(x, w, act): ...")).cases("float16")[0]
    inputs = case.make_inputs()
    ref = case.reference(product, inputs)
    torch.testing.assert_close(case.allowed(product, inputs, ref), 2**-10 * ref.abs() + 2**-11 * ref.abs().max())


def test_a_matmul_without_a_contraction_is_a_problem(folder):
    text = MATMUL.replace('contraction = "K"\n', "")
    assert "contraction: is missing, and has to be a string" in problems(folder(text, "def product(x, w, act): ..."))


@pytest.mark.parametrize(
    ("text", "value"), [("H//P", 3), ("(H//P)*(W//P) + 1", 7), ("H - W % P", 12), ("4", 4), (9, 9)]
)
def test_shape_expressions(text, value):
    assert evaluate(text, {"H": 13, "W": 9, "P": 4}) == value


@pytest.mark.parametrize("text", ["H ** P", "__import__('os')", "H +", "Q", "H // 0", "H.real", "1.5"])
def test_anything_else_is_refused_as_an_expression(text):
    with pytest.raises(ValueError):
        evaluate(text, {"H": 13, "P": 4})


def test_reading_a_spec_imports_no_torch(folder):
    code = "import sys; from kernels_neuron.spec import Spec; Spec.read(sys.argv[1]).cases()"
    code += "; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code, str(folder())], check=True)
