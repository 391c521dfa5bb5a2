"""The unfused baseline: the ATen ops of a reference, one launch each, every op at its own roofline.

OPS is the fixed list of what an op is called after decomposition. Casts, views, allocations and scalars cost nothing,
and attention is never one op. A tensor counts at most the case dtype's bytes per element, because a cast would have
been fused, and every choice where the count could go either way makes the baseline faster.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernels_neuron.arch import Arch
from kernels_neuron.dtypes import ROWS
from kernels_neuron.dtypes import dtype as as_dtype
from kernels_neuron.sim.context import is_launching

from .bound import roofline

# ATen name, without overload and trailing underscore -> what it is called here
OPS: dict[str, str] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm", "addmv", "mv", "dot"), "matmul"),
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable", "mkldnn_convolution"), "convolution"),
    **dict.fromkeys(("_softmax", "_safe_softmax", "softmax"), "softmax"),
    **dict.fromkeys(("native_layer_norm", "layer_norm"), "native_layer_norm"),
    "gelu": "gelu",
    "silu": "silu",
    **dict.fromkeys(("add", "sub", "rsub"), "add"),
    **dict.fromkeys(("mul", "div", "square"), "mul"),
    **dict.fromkeys(("cat", "stack"), "cat"),
    **dict.fromkeys(("clone", "copy", "contiguous", "constant_pad_nd", "roll", "repeat"), "copy"),
    **dict.fromkeys(("index", "index_select", "gather", "embedding"), "gather"),
    **dict.fromkeys(("masked_fill", "where"), "where"),
    **dict.fromkeys(("mean", "sum", "var", "var_mean", "amax", "amin", "max", "any", "all"), "reduce"),
    **dict.fromkeys(("exp", "tanh", "erf", "sigmoid", "rsqrt", "sqrt", "pow", "reciprocal", "neg", "abs"), "map"),
}
FREE = {
    *("view", "_unsafe_view", "reshape", "_reshape_alias", "expand", "permute", "transpose", "t", "slice", "select"),
    *("squeeze", "unsqueeze", "unfold", "as_strided", "split", "split_with_sizes", "unbind", "detach", "alias"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros", "zeros_like", "ones", "full"),
    *("ones_like", "full_like", "new_zeros", "new_ones", "new_full", "arange", "scalar_tensor", "lift_fresh"),
    *("_to_copy", "to", "item", "_local_scalar_dense", "is_nonzero", "diagonal", "resize", "set", "fill", "zero"),
    *("conj", "resolve_conj", "resolve_neg", "real", "narrow", "chunk", "movedim", "view_as", "expand_as", "flatten"),
    *("numpy_T", "mT", "T"),
}
_ATTENTION = ("scaled_dot_product", "_flash_attention", "_efficient_attention")


@dataclass(frozen=True)
class Op:
    """One unfused op: its name in OPS, useful flops, bytes through HBM."""

    name: str
    flops: int
    nbytes: int


@dataclass(frozen=True)
class Baseline:
    """The ops of one call and what they take, launches apart."""

    ops: tuple[Op, ...]
    times_us: tuple[float, ...]

    @property
    def us(self) -> float:
        """All of them, one after another."""
        return sum(self.times_us)

    @property
    def us_by_name(self) -> dict[str, float]:
        """What the ops of each name take together."""
        found: dict[str, float] = {}
        for op, us in zip(self.ops, self.times_us, strict=True):
            found[op.name] = found.get(op.name, 0.0) + us
        return found

    @property
    def launches(self) -> int:
        """One per op."""
        return len(self.ops)

    @property
    def counts(self) -> dict[str, int]:
        """How many ops of each name."""
        return dict(Counter(op.name for op in self.ops))


def baseline(
    reference: Callable[..., Any], inputs: dict[str, Any], args: dict[str, Any], dtype: str, arch: Arch, cores: int = 1
) -> Baseline:
    """Price `reference` as unfused ops on `arch`.

    inputs  tensors by name, in the dtypes and strides of the case; only shapes and strides are read
    args    the other keyword arguments
    dtype   of the case, by its NKI name
    """
    shadows = {name: _shadow(value) for name, value in inputs.items()}
    with OpRecorder(dtype) as recorder, torch.no_grad():
        reference(**shadows, **args)
    return price(recorder.ops, dtype, arch, cores)


def price(ops: list[Op], dtype: str, arch: Arch, cores: int = 1) -> Baseline:
    """Each op at its own roofline."""
    return Baseline(tuple(ops), tuple(roofline(op.flops, op.nbytes, dtype, arch, cores).us for op in ops))


class OpRecorder(TorchDispatchMode):
    """Records the ops that torch runs inside the block, at most `dtype`'s bytes per element.

    What runs inside a simulated kernel is the simulator's own arithmetic and is not recorded.
    """

    def __init__(self, dtype: str) -> None:
        super().__init__()
        self.itemsize = ROWS[as_dtype(dtype)].itemsize
        self.ops: list[Op] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if is_launching():
            return func(*args, **kwargs)
        namespace, name = func.namespace, func.overloadpacket.__name__
        if namespace != "aten":
            # a kernel's op: what its implementation runs around the launch counts, too
            kernel = torch.library.get_kernel(func, "CPU")
            with self:
                return kernel.call_boxed(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), *args, **kwargs)
        out = func(*args, **kwargs)
        if any(part in name for part in _ATTENTION):
            self._record_attention(args[0], args[1], args[2], kwargs.get("attn_mask"))
        else:
            self._record(name, args, kwargs, out)
        return out

    def _record(self, name: str, args: Any, kwargs: Any, out: Any) -> None:
        plain = name.removesuffix("_copy").removesuffix("_") if name not in FREE and name not in OPS else name
        if plain == "copy" and _casts_only(args):
            return
        tensors, results = list(_tensors((args, kwargs))), list(_tensors(out))
        if plain in FREE or all(result.numel() <= 1 for result in results):
            return
        # one tensor read twice comes from HBM once; an op in place reads and writes it
        read = {id(tensor): tensor for tensor in tensors}
        nbytes = sum(map(self._size, read.values())) + sum(map(self._size, results))
        if OPS.get(plain) == "gather":
            # of the table only the rows that are asked for, which are the result
            nbytes += sum(map(self._size, results)) - self._size(tensors[0])
        self.ops.append(Op(OPS.get(plain, plain), _flops(OPS.get(plain, plain), plain, tensors, results), nbytes))

    def _record_attention(self, query: Any, key: Any, value: Any, mask: Any) -> None:
        """softmax(scale q kT + mask) v, as the ops it stands for."""
        *lead, rows, depth = query.shape
        columns, width = key.shape[-2], value.shape[-1]
        batch = math.prod(lead)
        count, item = batch * rows * columns, self.itemsize
        scores = count * item
        reads = self._size(query), self._size(key), self._size(value)
        self.ops.append(Op("matmul", 2 * count * depth, reads[0] + reads[1] + scores))
        self.ops.append(Op("mul", 0, 2 * scores))
        if mask is not None:
            self.ops.append(Op("add", 0, 2 * scores + self._size(mask)))
        self.ops.append(Op("softmax", 0, 2 * scores))
        self.ops.append(Op("matmul", 2 * count * width, scores + reads[2] + batch * rows * width * item))

    def _size(self, tensor: torch.Tensor) -> int:
        """Bytes of the distinct elements of a tensor; one element costs nothing."""
        shape = [size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride]
        count = math.prod(shape) if tensor.numel() else 0
        return 0 if count <= 1 else count * min(tensor.element_size(), self.itemsize)


def _casts_only(args: Any) -> bool:
    """copy_ between two dtypes of one layout is a cast."""
    target, source = args[0], args[1]
    return isinstance(source, torch.Tensor) and target.dtype != source.dtype and target.stride() == source.stride()


def _shadow(value: Any) -> Any:
    """A meta tensor of the same shape, strides and dtype."""
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)


def _flops(kind: str, name: str, tensors: list[torch.Tensor], results: list[torch.Tensor]) -> int:
    """Multiply-adds of TensorE ops as two; everything else streams, and its arithmetic is not what bounds it."""
    out = results[0]
    if kind == "matmul":
        left = tensors[1] if name in ("addmm", "baddbmm", "addmv") else tensors[0]
        return 2 * out.numel() * left.shape[-1]
    if kind == "convolution":
        weight = tensors[1]
        return 2 * out.numel() * math.prod(weight.shape[1:])
    return 0
