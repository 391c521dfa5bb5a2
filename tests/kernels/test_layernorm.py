import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernels_neuron.sim.context import using

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
NORM = {torch.float32: (1e-5, 1e-6), torch.bfloat16: (2**-7, 2**-8), torch.float16: (2**-10, 2**-11)}


@pytest.fixture(scope="module")
def module(load):
    return load("layernorm")


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def expected(x, weight=None, bias=None, eps=1e-5):
    wide = [None if tensor is None else tensor.double() for tensor in (x, weight, bias)]
    return F.layer_norm(wide[0], x.shape[-1:], wide[1], wide[2], eps)


def assert_close(out, ref):
    rtol, atol = NORM[out.dtype]
    atol *= 1.0 if out.dtype == torch.float32 else float(ref.abs().max())
    torch.testing.assert_close(out.double(), ref, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [64, 768])
def test_a_row_alone_equals_the_row_in_a_batch(module, dtype, width):
    x = torch.randn(700, width).to(dtype)
    weight, bias = torch.randn(2, width).to(dtype)
    together = module.layernorm(x, weight, bias)
    for row in (0, 1, 127, 128, 399, 699):
        assert torch.equal(module.layernorm(x[row : row + 1], weight, bias)[0], together[row])


@pytest.mark.parametrize("cores", ["1", "2"])
def test_cores_do_not_change_the_result(module, monkeypatch, cores):
    x = torch.randn(300, 600).to(torch.bfloat16)
    alone = module.layernorm(x)
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", cores)
    with using() as runs:
        assert torch.equal(module.layernorm(x), alone)
    assert [run.lnc for run in runs] == [int(cores)]


def layouts():
    base = torch.randn(8, 128, 64)
    return {
        "leading axes that do not merge": base[:, :100],
        "short outer slabs": base[:, :5],
        "every second column": base[..., ::2],
        "transposed": base.transpose(1, 2),
        "heads first": base.view(8, 16, 8, 64).transpose(1, 2),
        "every second row": base[:, ::2],
        "columns of a wider row": base[..., 3:40],
        "one row repeated": base[:1, :1].expand(5, 40, 64),
        "one axis": base[3, 4],
        "four axes": base.view(2, 4, 16, 8, 64)[:, 1:3],
    }


@pytest.mark.parametrize("name", list(layouts()))
def test_strides_do_not_change_the_result(module, name):
    x = layouts()[name]
    bits = module.layernorm(x)
    assert bits.is_contiguous()
    assert torch.equal(bits, module.layernorm(x.contiguous()))


@pytest.mark.parametrize("name", ["leading axes that do not merge", "every second row", "columns of a wider row"])
def test_rows_in_memory_are_not_copied(module, name):
    x = layouts()[name]
    with using() as runs:
        module.layernorm(x)
    trace = runs[0].traces[0]
    transfers = [record.price.transfer for record in trace.records if record.price.transfer]
    loads = [transfer for transfer in transfers if transfer.direction == "load"]
    assert sum(load.descriptors * load.descriptor_bytes for load in loads) == x.numel() * x.element_size()
    # the kernel was given the memory under x, gaps included
    assert trace.tiles[min(trace.tiles)].nbytes > x.numel() * x.element_size()


@pytest.mark.parametrize("shape", [(0, 128), (4, 0), (2, 0, 64)])
def test_empty_tensors_give_empty_results_without_a_launch(module, shape):
    x = torch.empty(shape, dtype=torch.bfloat16)
    with using() as runs:
        out = module.layernorm(x, torch.ones(shape[-1]))
    assert (out.shape, out.dtype, runs) == (x.shape, x.dtype, [])


@pytest.mark.parametrize("mean,std", [(1e3, 0.1), (1e3, 1.0), (1e4, 1.0)])
def test_float32_variance_survives_a_large_mean(module, mean, std):
    x = mean + std * torch.randn(40, 768)
    assert_close(module.layernorm(x), expected(x))


def test_an_outlier_at_the_start_of_a_row_costs_little(module):
    for dtype in DTYPES:
        x = torch.randn(20, 2048)
        x[:, 0] = 1e3
        x = x.to(dtype)
        assert_close(module.layernorm(x), expected(x))


def test_constant_rows_are_exactly_zero(module):
    for dtype in DTYPES:
        x = torch.full((3, 1000), 300.0).to(dtype)
        assert torch.equal(module.layernorm(x, eps=1e-12), torch.zeros_like(x))


@pytest.mark.parametrize("eps", [1e-5, 1e-6])
def test_eps_is_added_inside_the_root(module, eps):
    x = torch.tensor([[1e-4, -1e-4]])
    torch.testing.assert_close(module.layernorm(x, eps=eps), x / (1e-8 + eps) ** 0.5)


def test_float16_rows_near_the_largest_number_do_not_overflow(module):
    x = torch.full((2, 4096), 6e4)
    x[:, 7] = -6e4
    x = x.half()
    assert_close(module.layernorm(x), expected(x))


def test_x_is_unchanged(module):
    x = torch.randn(5, 33)
    before = x.clone()
    module.layernorm(x).fill_(0)
    assert torch.equal(x, before)


@pytest.mark.parametrize(
    "arguments,error,message",
    [
        (
            {"x": torch.zeros(2, 4, dtype=torch.float64)},
            ValueError,
            r"x has to be float32, bfloat16 or float16, got float64\[2, 4\]",
        ),
        ({"x": torch.zeros(2, 16385)}, ValueError, "H has to be 1 to 16384, got 16385"),
        ({"x": torch.tensor(1.0)}, ValueError, r"x has to have at least 1 axes, got float32\[\]"),
        ({"weight": torch.zeros(3)}, ValueError, r"weight has to have shape \[H\] = \[4\], got float32\[3\]"),
        ({"bias": torch.zeros(1, 4)}, ValueError, r"bias has to have shape \[H\] = \[4\], got float32\[1, 4\]"),
        ({"bias": torch.zeros(4, dtype=torch.int32)}, ValueError, "bias has to be .* got int32"),
        ({"weight": torch.zeros(4, device="meta")}, ValueError, "weight is on meta, x on cpu"),
        ({"weight": [1, 2, 3, 4]}, TypeError, "weight has to be a tensor or None, got list"),
        ({"eps": -1.0}, ValueError, "eps has to be at least 0, got -1.0"),
    ],
    ids=["dtype", "width", "rank", "weight shape", "bias rank", "bias dtype", "device", "type", "eps"],
)
def test_bad_input_is_refused_by_name_limit_and_value(module, arguments, error, message):
    with using() as runs, pytest.raises(error, match=f"^layernorm: {message}"):
        module.layernorm(**({"x": torch.zeros(2, 4)} | arguments))
    assert runs == []


@pytest.mark.parametrize("reason,x", [("dtype", torch.zeros(2, 4).double()), ("shape", torch.zeros(1, 16385))])
def test_what_the_reference_could_do_is_refused_as_unsupported(module, reason, x):
    with pytest.raises(module.Unsupported) as refusal:
        module.layernorm(x)
    assert refusal.value.reason == reason


def test_the_operator_passes_opcheck(module):
    op = module.ops._layernorm if hasattr(module, "ops") else module.layernorm.__globals__["_layernorm"]
    for x in (torch.randn(6, 8), torch.randn(3, 4, 8)[:, 1:].bfloat16()):
        torch.library.opcheck(op.default, (x, torch.randn(8), None, 1e-5))


def test_a_backward_through_the_kernel_raises(module):
    x = torch.randn(2, 8, requires_grad=True)
    with pytest.raises(RuntimeError, match="no backward"):
        module.layernorm(x).sum().backward()


def test_the_layer_takes_its_state_from_the_host(module):
    host = nn.LayerNorm(48, eps=1e-2)
    nn.init.normal_(host.weight)
    x = torch.randn(2, 9, 48)
    with torch.no_grad():
        out = module.layers.LayerNorm.forward(host, x)
    torch.testing.assert_close(out, host(x), rtol=1e-5, atol=1e-5)


def test_the_layer_refuses_to_normalize_over_two_axes(module):
    host = nn.LayerNorm((4, 8))
    with pytest.raises(module.Unsupported, match="normalized_shape"):
        module.layers.LayerNorm.forward(host, torch.randn(2, 4, 8))


def test_the_cpu_variant_differentiates(load):
    module = load("layernorm", "torch-cpu")
    x = torch.randn(4, 8, requires_grad=True)
    weight = torch.randn(8, dtype=torch.bfloat16, requires_grad=True)
    module.layernorm(x, weight).sum().backward()
    assert module.layers.LayerNorm.has_backward
    assert (x.grad.dtype, weight.grad.dtype) == (torch.float32, torch.bfloat16)
