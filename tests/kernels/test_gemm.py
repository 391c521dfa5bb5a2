import importlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using
from kernels_neuron.sim.run import simulate

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
FLOAT64_SUMS = Settings(switches={"matmul_sum": "float64"})
TILES = [
    {"tile_m": 64, "tile_n": 256, "tile_k": 128},
    {"tile_m": 128, "tile_n": 512, "tile_k": 64},
    {"tile_m": 32, "tile_n": 128, "tile_k": 128},
    {"tile_m": 17, "tile_n": 100, "tile_k": 33},
]


@pytest.fixture(scope="module")
def module(load):
    return load("gemm")


@pytest.fixture(scope="module")
def kernel(module):
    return importlib.import_module(f"{module.__name__}.gemm.kernel").gemm


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def assert_close(out, x, weight, bias=None):
    """Within the project's rule for a product without epilogue; weight is [K, N]."""
    wide = [None if tensor is None else tensor.double() for tensor in (x, weight, bias)]
    ref = wide[0] @ wide[1] + (0 if bias is None else wide[2])
    if out.dtype == torch.float32:
        size = wide[0].abs() @ wide[1].abs() + (0 if bias is None else wide[2].abs())
        allowed = (x.shape[-1] + 2) * 2**-24 * size
    else:
        bits = 8 if out.dtype == torch.bfloat16 else 11
        allowed = 2.0 ** (1 - bits) * ref.abs() + 2.0**-bits * ref.abs().max()
    assert bool(((out.double() - ref).abs() <= allowed).all())


@pytest.mark.parametrize("panel_bytes", [65536, 1024, 512], ids="panel_{}".format)
@pytest.mark.parametrize("tiles", TILES, ids=lambda tiles: "x".join(map(str, tiles.values())))
def test_every_tile_size_gives_the_product(kernel, tiles, panel_bytes):
    x, weight, bias = torch.randn(96, 160), torch.randn(160, 260), torch.randn(260)
    tiles = {**tiles, "panel_bytes": panel_bytes}
    out = simulate(kernel, x, weight, bias, tiles=tiles)
    assert_close(out, x, weight, bias)
    turned = simulate(kernel[2], x, weight.T.contiguous(), bias, transpose_weight=True, tiles=tiles)
    assert_close(turned, x, weight, bias)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("transpose_weight", [False, True])
def test_a_row_alone_equals_the_row_in_a_batch(module, dtype, transpose_weight):
    x, bias = torch.randn(300, 200).to(dtype), torch.randn(96).to(dtype)
    weight = torch.randn((96, 200) if transpose_weight else (200, 96)).to(dtype)
    with using(settings=FLOAT64_SUMS):
        together = module.gemm(x, weight, bias, epilogue="gelu", transpose_weight=transpose_weight)
        for row in (0, 1, 127, 128, 255, 299):
            alone = module.gemm(x[row : row + 1], weight, bias, epilogue="gelu", transpose_weight=transpose_weight)
            assert torch.equal(alone[0], together[row])


@pytest.mark.parametrize("cores", ["1", "2"])
def test_cores_do_not_change_the_result(module, monkeypatch, cores):
    x, weight = torch.randn(200, 70), torch.randn(70, 150)
    with using(settings=FLOAT64_SUMS):
        alone = module.gemm(x, weight)
        monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", cores)
        with using(settings=FLOAT64_SUMS) as runs:
            assert torch.equal(module.gemm(x, weight), alone)
    assert [run.lnc for run in runs] == [int(cores)]


def strided():
    base = torch.randn(6, 50, 40)
    return {
        "leading axes that do not merge": base[:, :30],
        "every second column": base[..., ::2],
        "transposed": base.transpose(1, 2),
        "four axes": base.view(2, 3, 50, 40),
        "one axis": base[0, 0],
        "one slice repeated": base[:1].expand(4, 50, 40),
    }


@pytest.mark.parametrize("name", list(strided()))
def test_strides_of_x_do_not_change_the_result(module, name):
    x = strided()[name]
    weight = torch.randn(x.shape[-1], 24)
    out = module.gemm(x, weight)
    assert out.shape == (*x.shape[:-1], 24)
    assert out.is_contiguous()
    assert torch.equal(out, module.gemm(x.contiguous(), weight))


def test_a_transposed_view_of_the_weight_is_not_copied(module):
    x, weight = torch.randn(20, 40), torch.randn(24, 40)
    with using() as runs:
        out = module.gemm(x, weight.T)
    assert torch.equal(out, module.gemm(x, weight, transpose_weight=True))
    shapes = [tile.shape for tile in runs[0].traces[0].tiles.values() if not tile.on_chip]
    assert (24, 40) in shapes


@pytest.mark.parametrize("shape", [((0, 8), (8, 5)), ((4, 8), (8, 0)), ((2, 0, 8), (8, 5))])
def test_empty_tensors_give_empty_results_without_a_launch(module, shape):
    x, weight = torch.randn(shape[0]), torch.randn(shape[1])
    with using() as runs:
        out = module.gemm(x, weight)
    assert out.shape == (*shape[0][:-1], shape[1][1])
    assert not runs


def test_an_empty_contraction_gives_epilogue_of_the_bias(module):
    bias = torch.randn(5)
    out = module.gemm(torch.randn(3, 0), torch.randn(0, 5), bias, epilogue="gelu")
    assert torch.equal(out, F.gelu(bias).expand(3, 5))


def test_output_memory_is_not_read(module):
    # fresh memory of the simulator counts as unwritten, and reading it raises
    assert bool(module.gemm(torch.randn(130, 70), torch.randn(70, 33)).isfinite().all())


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"weight": torch.ones(4)}, ValueError, "weight has to have 2 axes"),
        ({"weight": torch.ones(5, 3)}, ValueError, "last axis of x"),
        ({"x": torch.ones(2, 4, dtype=torch.float64)}, ValueError, "x has to be float32, bfloat16 or float16"),
        ({"weight": torch.ones(4, 3, dtype=torch.bfloat16)}, ValueError, "weight has to have the dtype of x"),
        ({"weight": torch.ones(4, 3, device="meta")}, ValueError, "weight is on meta"),
        ({"bias": torch.ones(4)}, ValueError, "bias has to have shape"),
        ({"residual": torch.ones(2, 4)}, ValueError, "residual has to have shape"),
        ({"epilogue": "tanh"}, ValueError, "epilogue has to be"),
        ({"x": None}, TypeError, "x has to be a tensor"),
    ],
    ids=["rank", "contraction", "dtype", "mixed dtypes", "device", "bias", "residual", "epilogue", "none"],
)
def test_bad_input_is_refused_by_name_before_any_work(module, arguments, error, says):
    call = {"x": torch.ones(2, 4), "weight": torch.ones(4, 3)} | arguments
    with using() as runs, pytest.raises(error, match=says):
        module.gemm(**call)
    assert not runs


@pytest.mark.parametrize("variant", ["torch-neuron", "torch-cpu"])
def test_layers_compute_what_the_modules_they_replace_compute(load, variant):
    module = load("gemm", variant)
    host = nn.Linear(20, 12)
    x = torch.randn(2, 7, 20)
    expected = {
        "Linear": host(x),
        "LinearGELU": F.gelu(host(x)),
        "LinearGELUTanh": F.gelu(host(x), approximate="tanh"),
    }
    for name, ref in expected.items():
        layer = getattr(module.layers, name)
        assert layer.has_backward == (variant == "torch-cpu")
        with torch.no_grad():
            torch.testing.assert_close(layer.forward(host, x), ref, rtol=1e-5, atol=1e-5)


def test_a_backward_through_the_kernel_says_that_there_is_none(module):
    x = torch.randn(3, 4, requires_grad=True)
    out = module.gemm(x, torch.randn(4, 5))
    with pytest.raises(RuntimeError, match="no backward"):
        out.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_opcheck(module, dtype):
    op = importlib.import_module(f"{module.__name__}.gemm.ops")._op
    x, weight, bias, residual = (torch.randn(shape).to(dtype) for shape in ((5, 8), (6, 8), (6,), (5, 6)))
    torch.library.opcheck(op, (x, weight, bias, residual, "gelu", True))
    torch.library.opcheck(op, (x, weight.T.contiguous(), None, None, "none", False))
