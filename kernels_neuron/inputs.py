"""Input tensors of a case: the closed lists of fills (which values) and layouts (which memory)."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .dtypes import dtype
from .tables import unknown

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Tensor:
    """One input of a case: its shape in numbers, its dtype as NKI names it, layout, fill and kind as in spec.toml."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    layout: str
    fill: str
    parameter: bool = False


# fill -> the parameters it takes and what kinds of dtype it can fill; REQUIRED marks one that has no default
REQUIRED = object()
_ANY = ("float", "int", "uint", "bool")
_FILLS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "normal": ({}, ("float",)),
    "rows": ({"mean": 0.0, "std": 1.0}, ("float",)),
    "uniform": ({"lo": REQUIRED, "hi": REQUIRED}, ("float", "int", "uint")),
    "zeros": ({}, _ANY),
    "ones": ({}, _ANY),
    "constant": ({"value": REQUIRED}, ("float", "int", "uint")),
    "arange": ({}, ("float", "int", "uint")),
    "mask": ({"keep": None, "lengths": None, "empty_row": False}, ("bool",)),
}
FILLS = tuple(_FILLS)
DEFAULT_FILL = {"float": "normal", "int": "arange", "uint": "arange", "bool": "ones"}

# layout -> the least and the greatest rank it makes sense for
_LAYOUTS = {
    "contiguous": (0, 99),
    "transposed": (2, 99),  # the last two axes swapped in memory
    "strided": (1, 99),  # every second element of the last axis
    "padded": (2, 99),  # rows wider in memory than they are, by 3 elements
    "offset": (1, 99),  # starts one element after the allocation
    "expanded": (2, 99),  # the first axis repeats one slice, stride 0
    "channels_last": (4, 4),  # (B, C, H, W) stored as (B, H, W, C)
    "bshd": (4, 4),  # (B, H, S, D) stored as (B, S, H, D)
    "packed": (2, 99),  # one slot of a fused buffer: (B, S, 3, H, D) for four axes, (..., 3, W) else
}
LAYOUTS = tuple(_LAYOUTS)


def layout_problem(layout: str, rank: int) -> str | None:
    """Why an input of `rank` axes cannot have this layout, or None."""
    if layout not in _LAYOUTS:
        return unknown("layout", layout, LAYOUTS)
    least, most = _LAYOUTS[layout]
    if least <= rank <= most:
        return None
    return f"{layout} needs {'exactly' if least == most else 'at least'} {least} axes, this input has {rank}"


def fill_problem(fill: str, dtype_name: str) -> str | None:
    """Why an input of this dtype cannot be filled so, or None."""
    name, given, problem = _parse_fill(fill)
    if problem:
        return problem
    parameters, kinds = _FILLS[name]
    missing = [key for key, default in parameters.items() if default is REQUIRED and key not in given]
    if missing:
        return f"{name} needs {missing[0]}=..."
    if dtype(dtype_name).row.kind not in kinds:
        return f"{name} does not fill {dtype_name}"
    if name == "mask" and not given:
        return "mask needs keep=..., lengths=... or empty_row"
    return None


def default_fill(dtype_name: str) -> str:
    """The fill of an input whose workload names none."""
    return DEFAULT_FILL[dtype(dtype_name).row.kind]


def make(tensors: Sequence[Tensor], label: str, seed: int) -> dict[str, "torch.Tensor"]:
    """The input tensors on the CPU, filled and laid out, keyed by name.

    The same label, name and seed give the same values, whatever the dtype or layout; memory between the elements
    is NaN (the largest integer, True), so that a kernel which reads it is found out. Inputs of one shape and dtype
    that are `packed` share one buffer, as query, key and value of a fused projection do.
    """
    slots: dict[tuple, list[str]] = {}
    for tensor in tensors:
        if tensor.layout == "packed":
            slots.setdefault((tensor.shape, tensor.dtype), []).append(tensor.name)
    buffers: dict[tuple, torch.Tensor] = {}
    made = {}
    for tensor in tensors:
        values = _values(tensor, label, seed)
        if tensor.layout == "packed":
            key = (tensor.shape, tensor.dtype)
            made[tensor.name] = _pack(values, slots[key].index(tensor.name), len(slots[key]), buffers, key)
        else:
            made[tensor.name] = _lay_out(values, tensor.layout)
    return made


def _parse_fill(fill: str) -> tuple[str, dict[str, Any], str | None]:
    name, *words = fill.split() or [""]
    if name not in _FILLS:
        return name, {}, unknown("fill", name, FILLS)
    parameters, _ = _FILLS[name]
    given: dict[str, Any] = {}
    for word in words:
        key, _, text = word.partition("=")
        if key not in parameters:
            return name, {}, unknown(f"parameter of {name}", key, parameters)
        try:
            if key == "empty_row":
                given[key] = True
            elif key == "lengths":
                given[key] = [int(part) for part in text.split(",")]
            else:
                given[key] = float(text)
        except ValueError:
            return name, {}, f"{key} of {name} has to be a number, got {text!r}"
    return name, given, None


def _values(tensor: Tensor, label: str, seed: int) -> "torch.Tensor":
    import torch

    name, given, problem = _parse_fill(tensor.fill)
    assert problem is None, problem
    parameters = {key: value for key, value in _FILLS[name][0].items() if value is not REQUIRED} | given
    generator = torch.Generator().manual_seed(zlib.crc32(f"{label}/{tensor.name}".encode()) + seed)
    torch_dtype = getattr(torch, dtype(tensor.dtype).row.torch or "")
    return _MAKERS[name](tensor.shape, torch_dtype, generator, **parameters).to(torch_dtype)


def _rows(shape: tuple[int, ...], _: Any, generator: Any, mean: float = 0.0, std: float = 1.0) -> "torch.Tensor":
    import torch

    return mean + std * torch.randn(shape, generator=generator)


def _uniform(shape: tuple[int, ...], torch_dtype: Any, generator: Any, lo: float, hi: float) -> "torch.Tensor":
    import torch

    if not torch_dtype.is_floating_point:
        return torch.randint(int(lo), int(hi), shape, generator=generator)
    return lo + (hi - lo) * torch.rand(shape, generator=generator)


def _constant(shape: tuple[int, ...], torch_dtype: Any, _: Any, value: float) -> "torch.Tensor":
    import torch

    return torch.full(shape, value, dtype=torch.float64)


def _arange(shape: tuple[int, ...], torch_dtype: Any, _: Any) -> "torch.Tensor":
    """0, 1, 2, ... in row-major order, starting again at the first integer the dtype cannot hold exactly."""
    import torch

    if torch_dtype.is_floating_point:
        wrap = round(2 / torch.finfo(torch_dtype).eps)
    else:
        wrap = torch.iinfo(torch_dtype).max
    return (torch.arange(torch.Size(shape).numel()) % wrap).reshape(shape)


def _mask(
    shape: tuple[int, ...], _: Any, generator: Any, keep: float | None, lengths: list[int] | None, empty_row: bool
) -> "torch.Tensor":
    """True = attend. Each row (last axis) keeps at least one True, except the first one of `empty_row`."""
    import torch

    width = shape[-1]
    rows = torch.Size(shape[:-1]).numel()
    if lengths is not None:
        ends = torch.tensor([lengths[i % len(lengths)] for i in range(rows)])
        mask = torch.arange(width) < ends[:, None]
    else:
        mask = torch.rand((rows, width), generator=generator) < (0.8 if keep is None else keep)
        if width:
            spared = torch.randint(0, width, (rows, 1), generator=generator)
            mask = mask.scatter(1, spared, True)
    if empty_row and rows:
        mask[0] = False
    return mask.reshape(shape)


_MAKERS: dict[str, Callable[..., "torch.Tensor"]] = {
    "normal": _rows,
    "rows": _rows,
    "uniform": _uniform,
    "zeros": lambda shape, kind, generator: _constant(shape, kind, generator, 0.0),
    "ones": lambda shape, kind, generator: _constant(shape, kind, generator, 1.0),
    "constant": _constant,
    "arange": _arange,
    "mask": _mask,
}


def _poisoned(shape: Sequence[int], like: "torch.Tensor") -> "torch.Tensor":
    import torch

    if like.dtype == torch.bool:
        return torch.ones(tuple(shape), dtype=torch.bool)
    poison = float("nan") if like.is_floating_point() else torch.iinfo(like.dtype).max
    return torch.full(tuple(shape), poison, dtype=like.dtype)


def _lay_out(values: "torch.Tensor", layout: str) -> "torch.Tensor":
    import torch

    *lead, width = values.shape or (1,)
    if layout == "contiguous":
        return values.contiguous()
    if layout == "transposed":
        return values.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == "channels_last":
        return values.contiguous(memory_format=torch.channels_last)
    if layout == "bshd":
        return values.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "expanded":
        return values[:1].contiguous().expand(values.shape)
    if layout == "strided":
        place = _poisoned((*lead, 2 * width), values)[..., ::2]
    elif layout == "padded":
        place = _poisoned((*lead, width + 3), values)[..., :width]
    else:
        assert layout == "offset", layout
        place = _poisoned((values.numel() + 1,), values)[1:].view(values.shape)
    return place.copy_(values)


def _pack(
    values: "torch.Tensor", slot: int, used: int, buffers: dict[tuple, "torch.Tensor"], key: tuple
) -> "torch.Tensor":
    """One slot of the buffer that inputs of one shape and dtype share; three slots at least, as a QKV buffer has."""
    count = max(3, used)
    if values.ndim == 4:
        batch, heads, length, width = values.shape
        buffer = buffers.setdefault(key, _poisoned((batch, length, count, heads, width), values))
        return buffer[:, :, slot].transpose(1, 2).copy_(values)
    *lead, width = values.shape
    buffer = buffers.setdefault(key, _poisoned((*lead, count, width), values))
    return buffer[..., slot, :].copy_(values)
