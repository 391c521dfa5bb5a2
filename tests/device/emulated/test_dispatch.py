"""Operators on neuron tensors: the CPU's values, the device's rules."""

import pytest
import torch

N = "neuron"

CALLS = {
    "add": lambda x: x + 1,
    "matmul": lambda x: x @ x.t(),
    "sum over an axis": lambda x: x.sum(0),
    "reshape of a transpose": lambda x: x.t().reshape(2, -1),
    "a strided view": lambda x: x[:, ::2],
    "comparison": lambda x: x > 0,
    "where with numbers": lambda x: torch.where(x > 0, 1.0, 2.0),
    "several results": lambda x: x.topk(2, dim=1),
    "a list of results": lambda x: x.split(1),
    "a list of arguments": lambda x: torch.cat((x, x), 1),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "a complex spectrum": lambda x: torch.fft.rfft(x),
    "the conjugate of one": lambda x: torch.fft.rfft(x).conj().imag,
    "another dtype": lambda x: x.to(torch.bfloat16),
    "64 bits": lambda x: x.double().long(),
    "unique": lambda x: x.round().unique(),
    "the shape without values": lambda x: torch.zeros_like(x),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(*[x.view(1, 1, 3, 4)] * 3, is_causal=True),
    "a convolution": lambda x: torch.nn.functional.conv1d(x[None], x[:, None, :2], groups=3),
}


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(3, 4)


@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
def test_an_operator_gives_what_the_cpu_gives(x, call):
    there, here = call(x.to(N)), call(x)
    if isinstance(here, torch.Tensor):
        there, here = (there,), (here,)
    for ours, theirs in zip(there, here, strict=True):
        assert ours.device == torch.device("neuron:0")
        assert (ours.dtype, ours.stride()) == (theirs.dtype, theirs.stride())
        torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.zeros(2, 3, device=d),
        lambda d: torch.full((2,), 7, device=d),
        lambda d: torch.arange(5, device=d),
        lambda d: torch.linspace(0, 1, 4, device=d),
        lambda d: torch.eye(3, device=d),
        lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
        lambda d: torch.tensor(2.5, device=d),
        lambda d: torch.tril_indices(3, 3, device=d),
        lambda d: torch.ones(2, device="cpu").new_full((3,), 4.0, device=d),
    ],
)
def test_a_factory_makes_it_on_the_device(make):
    assert make(N).device.type == N
    torch.testing.assert_close(make(N).cpu(), make("cpu"))


def test_an_in_place_operator_returns_the_tensor_it_changed(x):
    y = x.to(N)
    assert y.add_(1).mul_(2) is y
    torch.testing.assert_close(y.cpu(), (x + 1) * 2)


@pytest.mark.parametrize("operation", ["squeeze_", "t_", "unsqueeze_"])
def test_an_in_place_view_changes_the_shape(operation):
    arguments = (0,) if operation == "unsqueeze_" else ()
    here, there = torch.ones(1, 4), torch.ones(1, 4, device=N)
    assert getattr(there, operation)(*arguments) is there
    assert there.shape == getattr(here, operation)(*arguments).shape


def test_out_is_filled_resized_when_empty_and_resized_with_a_warning_otherwise(x):
    y = x.to(N)
    fits, empty, wrong = (torch.empty(shape, device=N) for shape in ((3, 4), 0, 5))
    assert torch.add(y, y, out=fits) is fits
    torch.add(y, y, out=empty)
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        torch.add(y, y, out=wrong)
    for out in (fits, empty, wrong):
        torch.testing.assert_close(out.cpu(), x + x)


def test_out_keeps_its_strides_and_may_be_an_input(x):
    y, out = x.to(N), torch.empty(4, 3, device=N).t()
    assert torch.mul(y, 2, out=out).stride() == (1, 3)
    torch.mul(y, y, out=y)
    torch.testing.assert_close(y.cpu(), x * x)


@pytest.mark.parametrize(
    "call",
    [
        lambda here, there: here + there,
        lambda here, there: there + here,
        lambda here, there: there.add_(here),
        lambda here, there: here.add_(there),
        lambda here, there: torch.ones(()).add_(there.sum()),
        lambda here, there: torch.cat((here, there)),
        lambda here, there: torch.add(here, here, out=there),
        lambda here, there: torch.equal(there, here),
        lambda here, there: torch.nn.functional.linear(there, here),
        lambda here, there: torch._foreach_add([there], [here]),
    ],
)
def test_tensors_of_two_devices_are_refused(call):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        call(torch.ones(2, 2), torch.ones(2, 2, device=N))


def test_what_every_device_takes_from_the_cpu_is_taken():
    x = torch.arange(4.0, device=N)
    assert (x + torch.tensor(1.0)).tolist() == [1, 2, 3, 4]
    assert x[torch.tensor([0, 3])].tolist() == [0, 3]
    x[torch.tensor([1])] = torch.tensor(9.0)
    assert x.tolist() == [0, 9, 2, 3]


def test_there_is_one_device():
    assert torch.zeros(1, device="neuron:0").device == torch.device("neuron", 0)
    for make in (lambda: torch.zeros(1, device="neuron:1"), lambda: torch.zeros(1).to("neuron:1")):
        with pytest.raises(
            RuntimeError, match="there is no neuron:1: the emulated neuron device has one core, neuron:0"
        ):
            make()


def test_what_the_device_has_not_is_refused():
    with pytest.raises(NotImplementedError, match="only dense ones"):
        torch.eye(2, device=N).to_sparse()
    with pytest.raises(RuntimeError, match="Expected a 'neuron' device type for generator but found 'cpu'"):
        torch.randn(2, device=N, generator=torch.Generator())
    with pytest.raises(RuntimeError, match="pinned"):
        torch.empty(2, device=N, pin_memory=True)
    with pytest.raises(TypeError, match="neuron:0 device type tensor to numpy"):
        torch.zeros(2, device=N).numpy()
    with pytest.raises(ValueError, match="Dlpack"):
        torch.from_dlpack(torch.zeros(2, device=N))


def test_autograd_goes_through_views_and_in_place_operators():
    def gradient(device):
        x = torch.arange(6.0, device=device).view(2, 3).requires_grad_()
        y = x.clone()
        y[0].mul_(3)
        (y.t() @ y).exp().mul(1e-3).sum().backward()
        return x.grad.cpu()

    torch.testing.assert_close(gradient(N), gradient("cpu"))


def test_zeros_that_autograd_never_stored_are_stored_here():
    x = torch.ones(2, device=N, dtype=torch.complex64, requires_grad=True)
    torch.sgn(x).abs().sum().backward()
    assert x.grad.cpu().abs().max() < 1e-6


def test_transforms_of_functions_work():
    x = torch.ones(2, 3, device=N)
    assert torch.func.vmap(torch.sum)(x).tolist() == [3, 3]
    assert torch.func.grad(lambda a: (a**2).sum())(x).cpu().equal(torch.full((2, 3), 2.0))
    assert torch.func.jvp(torch.sin, (x,), (x,))[1].device.type == N


def test_one_seed_gives_the_same_numbers_again():
    torch.manual_seed(3)
    first = torch.randn(4, device=N)
    state = torch.neuron.get_rng_state()
    second = torch.randn(4, device=N)
    torch.manual_seed(3)
    assert torch.randn(4, device=N).equal(first)
    torch.neuron.set_rng_state(state)
    assert torch.randn(4, device=N).equal(second)
