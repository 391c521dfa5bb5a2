"""Weights that a kernel lays out once and keeps: never another weight's, never an older one's, freed with their own."""

import copy
import gc
import importlib
import io
import pickle
import warnings
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from kernels_neuron.cost.baseline import OpRecorder
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using


@pytest.fixture(scope="module")
def module(load):
    return load("gemm")


@pytest.fixture
def kept(module):
    module.kept_weights.clear()
    yield module.kept_weights
    module.kept_weights.enabled = True
    module.kept_weights.clear()


@pytest.fixture
def host():
    torch.manual_seed(0)
    return nn.Linear(20, 12).requires_grad_(False)


@pytest.fixture
def x():
    return torch.randn(3, 20)


def serve(module, host, x):
    return module.layers.Linear.forward(host, x)


def plain(module, host, x):
    """What a layer gives when nothing is kept: a tensor that is no Parameter never is."""
    return module.gemm(x, host.weight.detach().clone(), host.bias, transpose_weight=True)


def optimizer_step(host):
    host.requires_grad_(True)
    with torch.enable_grad():
        F.linear(torch.ones(1, 20), host.weight).sum().backward()
    torch.optim.SGD(host.parameters(), lr=1.0).step()
    host.requires_grad_(False)


def fused_optimizer_step(host):
    host.weight.grad = torch.ones_like(host.weight)
    host.weight.requires_grad_(True)
    torch.optim.AdamW([host.weight], lr=1.0, fused=True).step()
    host.weight.requires_grad_(False)


def swap_data_twice(host):
    # the second one often gets the memory of what the first one replaced
    shape = host.weight.shape
    host.weight.data = torch.randn(shape)
    host.weight.data = torch.randn(shape)


def swap_contents(host):
    torch.utils.swap_tensors(host.weight, nn.Parameter(torch.randn(12, 20)))


def resize_storage(host):
    storage, content = host.weight.untyped_storage(), torch.randn(12, 20)
    nbytes = storage.nbytes()
    storage.resize_(0)
    storage.resize_(nbytes)
    host.weight.copy_(content)


def write_in_inference_mode(host):
    with torch.inference_mode():
        host.weight.mul_(2)


COUNTED = {
    "optimizer step": optimizer_step,
    "fused optimizer step": fused_optimizer_step,
    "in place": lambda host: host.weight.add_(1),
    "one element": lambda host: host.weight.__setitem__((3, 5), 7.0),
    "through a view": lambda host: host.weight.T[2].zero_(),
    "through detach": lambda host: host.weight.detach().mul_(2),
    "init": lambda host: nn.init.normal_(host.weight),
    "reset_parameters": lambda host: host.reset_parameters(),
    "copy_": lambda host: host.weight.copy_(torch.randn(12, 20)),
    "in inference mode": write_in_inference_mode,
    "load_state_dict": lambda host: host.load_state_dict(nn.Linear(20, 12).state_dict()),
    "load_state_dict, assigned": lambda host: host.load_state_dict(nn.Linear(20, 12).state_dict(), assign=True),
    "another parameter": lambda host: setattr(host, "weight", nn.Parameter(torch.randn(12, 20))),
    "other data": lambda host: setattr(host.weight, "data", torch.randn(12, 20)),
    "other data, twice": swap_data_twice,
    "other strides": lambda host: setattr(host.weight, "data", host.weight.data.flip(0)),
    "other shape": lambda host: setattr(host.weight, "data", torch.randn(20, 12).T),
    "set_": lambda host: host.weight.data.set_(torch.randn(12, 20)),
    "swapped contents": swap_contents,
    "storage resized": resize_storage,
    "vector_to_parameters": lambda host: nn.utils.vector_to_parameters(torch.randn(252), host.parameters()),
    "foreach": lambda host: torch._foreach_mul_([host.weight], 3.0),
}
UNCOUNTED = {
    "in place on .data": lambda host: host.weight.data.add_(1),
    "one element of .data": lambda host: host.weight.data.__setitem__((3, 5), 7.0),
    "the lowest bit of the last element": lambda host: host.weight.data.view(torch.int32)[-1, -1].bitwise_xor_(1),
    "two elements of .data change places": lambda host: host.weight.data.copy_(
        host.weight.data[:, [1, 0, *range(2, 20)]]
    ),
    "merge as PEFT does": lambda host: host.weight.data.__iadd__(torch.randn(12, 20)),
    "NumPy": lambda host: host.weight.numpy().__imul__(2),
    "DLPack": lambda host: torch.from_dlpack(host.weight.detach()).fill_(3.0),
    "storage": lambda host: host.weight.untyped_storage().fill_(1),
}


@pytest.mark.parametrize("write", COUNTED.values(), ids=COUNTED)
def test_a_weight_that_changed_is_laid_out_again(module, kept, host, x, write):
    serve(module, host, x)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        write(host)
        assert torch.equal(serve(module, host, x), plain(module, host, x))
    assert torch.equal(serve(module, host, x), plain(module, host, x))


@pytest.mark.parametrize("write", UNCOUNTED.values(), ids=UNCOUNTED)
def test_a_write_that_torch_does_not_count_is_found_in_host_memory_and_warned_of(module, kept, host, x, write):
    before = serve(module, host, x)
    version = host.weight._version
    write(host)
    assert host.weight._version == version
    with pytest.warns(UserWarning, match=r"weight float32\[12, 20\] was written past PyTorch's count"):
        after = serve(module, host, x)
    assert torch.equal(after, plain(module, host, x))
    assert not torch.equal(after, before)


@pytest.mark.parametrize("shape", [(96, 200), (700, 33), (1, 9), (5, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_any_single_element_counts(module, kept, dtype, shape):
    weights = importlib.import_module(f"{module.__name__}.common.weights")
    weight = nn.Parameter(torch.randn(shape).to(dtype), requires_grad=False)
    bits = weight.data.view(torch.int32 if dtype == torch.float32 else torch.int16)
    seen = {weights._content(weight)}
    for place in [(0, 0), (shape[0] - 1, shape[1] - 1), (shape[0] // 2, shape[1] // 3)]:
        bits[place] ^= 1
        seen.add(weights._content(weight))
    assert len(seen) == 4 if shape != (5, 1) else len(seen) > 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(96, 200), (513, 70), (1, 40), (40, 1)], ids=str)
def test_a_kept_weight_changes_no_bit_of_the_result(module, kept, shape, dtype):
    torch.manual_seed(0)
    x, weight, bias = (torch.randn(size).to(dtype) for size in ((130, shape[1]), shape, shape[:1]))
    parameter = nn.Parameter(weight, requires_grad=False)
    with using(settings=Settings(switches={"matmul_sum": "float64"})) as runs:
        outs = [
            module.gemm(x, each, bias, epilogue="gelu", transpose_weight=True)
            for each in (weight, parameter, parameter)
        ]
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2])
    assert runs[0].instructions >= runs[1].instructions == runs[2].instructions


def test_the_second_call_copies_nothing(module, kept, host, x):
    counts = []
    for _ in range(2):
        with OpRecorder("float32") as recorder:
            serve(module, host, x)
        counts.append([op.name for op in recorder.ops])
    assert counts == [["copy"], []]


def test_nan_and_signed_zero_stay_what_they_are(module, kept, host, x):
    host.weight[0, 0], host.weight[1, 1] = float("nan"), -0.0
    first = serve(module, host, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = serve(module, host, x)
    torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)
    assert first.isnan().any()


def test_a_copy_takes_the_memory_of_its_weight_until_that_dies(module, kept, host, x):
    storage = None
    for _ in range(3):
        serve(module, host, x)
    assert kept.nbytes == 12 * 20 * 4
    (copies,) = host.weight.__dict__.values()
    (tensor,) = copies.made.values()
    storage = weakref.ref(tensor)
    del copies, tensor
    host.weight = nn.Parameter(torch.randn(12, 20))
    gc.collect()
    assert storage() is None
    assert kept.nbytes == 0


def test_clear_frees_every_copy_and_disabled_makes_none(module, kept, host, x):
    expected = serve(module, host, x)
    kept.clear()
    assert kept.nbytes == 0
    assert torch.equal(serve(module, host, x), expected)
    kept.clear()
    kept.enabled = False
    assert torch.equal(serve(module, host, x), expected)
    assert kept.nbytes == 0


def test_an_inference_tensor_has_no_version_and_is_compared_by_content(module, kept, x):
    with torch.inference_mode():
        host = nn.Linear(20, 12)
        serve(module, host, x)
        host.weight.mul_(2)
        assert torch.equal(serve(module, host, x), plain(module, host, x))
    assert torch.equal(serve(module, host, x), plain(module, host, x))


@pytest.mark.parametrize("first", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("second", [torch.inference_mode, torch.no_grad, torch.enable_grad])
def test_a_copy_made_in_one_grad_mode_serves_in_another(module, kept, host, x, first, second):
    with first():
        out = serve(module, host, x)
    with second():
        assert torch.equal(serve(module, host, x), out)


def test_a_backward_is_refused_as_without_a_copy(module, kept, host, x):
    host.requires_grad_(True)
    with torch.no_grad():
        serve(module, host, x)
    out = serve(module, host, x)
    assert out.requires_grad
    with pytest.raises(RuntimeError, match="no backward"):
        out.sum().backward()


def test_tied_weights_share_a_copy_and_a_deepcopy_has_its_own(module, kept, host, x):
    tied = nn.Linear(20, 12)
    tied.weight = host.weight
    serve(module, host, x)
    serve(module, tied, x)
    assert kept.nbytes == 12 * 20 * 4
    twin = copy.deepcopy(host)
    twin.weight.zero_()
    assert torch.equal(serve(module, twin, x), host.bias.new_zeros(3, 12) + twin.bias)
    assert torch.equal(serve(module, host, x), plain(module, host, x))


def test_one_parameter_used_both_ways_has_two_copies(module, kept):
    square = nn.Parameter(torch.randn(8, 16)[:, ::2], requires_grad=False)
    x = torch.randn(3, 8)
    for transpose in (False, True, False, True):
        out = module.gemm(x, square, transpose_weight=transpose)
        torch.testing.assert_close(out, x @ (square.T if transpose else square))


def test_pickle_state_dict_and_save_leave_the_copy_behind(module, kept, host, x):
    serve(module, host, x)
    file = io.BytesIO()
    torch.save(host.state_dict(), file)
    torch.save(host.weight, again := io.BytesIO())
    assert len(again.getvalue()) < len(file.getvalue()) + 12 * 20 * 4
    for loaded in (pickle.loads(pickle.dumps(host)), copy.copy(host), copy.deepcopy(host)):
        loaded.weight = nn.Parameter(loaded.weight.detach().clone(), requires_grad=False)
        assert torch.equal(serve(module, loaded, x), plain(module, host, x))
    weight = torch.load(io.BytesIO(again.getvalue()), weights_only=True)
    host.weight = weight
    assert torch.equal(serve(module, host, x), plain(module, host, x))
    assert b"KeptWeights" not in again.getvalue() and b"_Copies" not in again.getvalue()


@pytest.mark.parametrize("convert", ["double", "half", "bfloat16"])
def test_converted_modules_are_laid_out_again(module, kept, host, x, convert):
    serve(module, host, x)
    getattr(host, convert)()
    dtype = host.weight.dtype
    if dtype == torch.float64:
        host.float()
        dtype = torch.float32
    x = x.to(dtype)
    assert torch.equal(serve(module, host, x), plain(module, host, x))


def test_tensors_that_are_no_parameters_are_never_kept(module, kept, host, x):
    for weight in (host.weight.detach(), host.weight[:], host.weight * 1, nn.Buffer(host.weight.detach())):
        module.gemm(x, weight, transpose_weight=True)
    assert kept.nbytes == 0


def test_a_price_only_run_leaves_nothing_wrong_behind(module, kept, host, x):
    with using(settings=Settings(execute=False)):
        serve(module, host, x)
    assert torch.equal(serve(module, host, x), plain(module, host, x))


def test_fake_tensors_and_compiled_calls(module, kept, host, x):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        assert serve(module, host, x).shape == (3, 12)
    assert kept.nbytes == 0
    compiled = torch.compile(lambda x: serve(module, host, x), backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(x), plain(module, host, x))
    host.weight.add_(1)
    assert torch.equal(compiled(x), plain(module, host, x))
    torch._dynamo.reset()


def test_functional_call_uses_the_weight_it_is_given(module, kept, host, x):
    serve(module, host, x)
    given = {"weight": torch.randn(12, 20), "bias": torch.zeros(12)}

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.host = host

        def forward(self, x):
            return serve(module, self.host, x)

    out = torch.func.functional_call(Wrapped(), {f"host.{name}": value for name, value in given.items()}, (x,))
    torch.testing.assert_close(out, F.linear(x, **given))


def test_meta_default_device_does_not_reach_the_copy(module, kept, host, x):
    with torch.device("meta"):
        out = serve(module, host, x)
    assert torch.equal(out, plain(module, host, x))


def test_one_weight_can_be_forgotten(module, kept, host, x):
    other = nn.Linear(20, 12)
    serve(module, host, x)
    serve(module, other, x)
    kept.forget(host.weight)
    gc.collect()
    assert kept.nbytes == other.weight.numel() * 4
    kept.forget(host.weight)
