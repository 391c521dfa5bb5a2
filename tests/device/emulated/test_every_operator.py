"""torch's own list of operators with sample inputs: each call gives on neuron what it gives on the CPU."""

import itertools
import sys
import types
import unittest

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

pytestmark = pytest.mark.slow

N = "neuron"
SAMPLES = 3  # of each operator, there are up to hundreds

# operator -> why its results differ
DIFFERENT = {
    "to": "its samples name the CPU as the target",
    "to_sparse": "the device has no sparse tensors",
    "tensor_split": "torch wants the indices on the CPU",
    "as_strided.partial_views": "its samples look beyond the tensor that is moved",
    "empty": "uninitialized",
    "empty_like": "uninitialized",
    "empty_permuted": "uninitialized",
    "empty_strided": "uninitialized",
    "new_empty": "uninitialized",
    "new_empty_strided": "uninitialized",
}


def operators():
    # torch.testing's list needs a test helper that it only inherits from
    if "expecttest" not in sys.modules:
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].TestCase = unittest.TestCase
    from torch.testing._internal.common_methods_invocations import op_db

    named = {f"{op.name}.{op.variant_test_name}".strip("."): op for op in op_db}
    # jiterator compiles CUDA code
    return {name: op for name, op in named.items() if name not in DIFFERENT and not name.startswith("jiterator")}


def move(value):
    def one(x):
        return x.detach().to(N).requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x

    return tree_map(one, value)


def tensors(value):
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def outcome(call, sample):
    """The tensors and gradients of a call, or the type of what it raised."""
    arguments = (sample.input, sample.args, sample.kwargs)
    torch.manual_seed(1)
    try:
        results = tensors(call(sample.input, *sample.args, **sample.kwargs))
        leaves = [x for x in tensors(arguments) if x.requires_grad]
        ends = [x.abs().sum() for x in results if x.requires_grad]
        if leaves and ends:
            results += [g for g in torch.autograd.grad(sum(ends), leaves, allow_unused=True) if g is not None]
    except (RuntimeError, ValueError, IndexError, NotImplementedError, TypeError) as error:
        return type(error)
    return results


def differences(name, op, dtype):
    requires_grad = op.supports_autograd and dtype is torch.float32
    samples = op.sample_inputs("cpu", dtype, requires_grad=requires_grad)
    for number, sample in enumerate(itertools.islice(samples, SAMPLES)):
        if any(x.layout is not torch.strided for x in tensors((sample.input, sample.args, sample.kwargs))):
            continue
        there = type(sample)(move(sample.input), args=move(sample.args), kwargs=move(sample.kwargs))
        if "device" in there.kwargs:
            there.kwargs["device"] = N
        calls = {"": op}
        if op.inplace_variant and not sample.broadcasts_input and not requires_grad:
            calls["in place"] = op.inplace_variant
        for kind, call in calls.items():
            ours, theirs = outcome(call, there), outcome(call, sample)
            where = f"{name} {kind} {dtype} sample {number}"
            if isinstance(theirs, type) or isinstance(ours, type):
                if ours is not theirs:
                    yield f"{where}: {ours} on neuron, {theirs} on the CPU"
                continue
            try:
                for x, y in zip(ours, theirs, strict=True):
                    assert x.device.type == N, f"on {x.device}"
                    if x.numel() > 1 and 1 not in x.shape:  # the stride of an axis of one element means nothing
                        assert x.stride() == y.stride(), f"strides {x.stride()}, on the CPU {y.stride()}"
                    torch.testing.assert_close(x.detach().cpu(), y.detach(), equal_nan=True, rtol=1e-3, atol=1e-3)
            except (AssertionError, ValueError) as error:
                yield f"{where}: {error}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.complex64], ids=["float32", "int64", "complex64"])
def test_every_operator_gives_what_the_cpu_gives(dtype):
    torch.manual_seed(0)
    found = []
    for name, op in operators().items():
        if op.supports_dtype(dtype, "cpu"):
            found += differences(name, op, dtype)
    assert not found, "\n".join(found)
