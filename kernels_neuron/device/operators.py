"""Operators that are about the tensor, not its values: copies between devices, views, sizes and storages."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .dispatch import NAME, Op, fallback, kernel
from .memory import new_storage, on_host
from .recurrent import CELLS

Tensor = torch.Tensor
aten = torch.ops.aten
_CPU = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

# the CPU's kernels for these touch sizes, strides and the reference to the storage, never the memory
_METADATA_ONLY = (
    "as_strided",
    "view",
    "_reshape_alias",
    "unfold",
    "view_as_real",
    "view_as_complex",
    "is_set_to",
)
# views, or results that share memory, which torch makes of the above in C++ for every device
_LEAVE = frozenset({"_unsafe_view", "lift", "lift_fresh", "_lazy_clone", "resize", "resize_as_", "_conj", "_neg_view"})
# without tensors to tell the device by, torch.tensor() looks these up by name
_FACTORIES = ("empty.memory_format", "empty_strided")


def register(library: torch.library.Library, everything: torch.library.Library) -> None:
    """Give the dispatcher all kernels of the device."""
    everything.fallback(fallback, "PrivateUse1")
    for name, own in _OWN.items():
        library.impl(name, own, "PrivateUse1")
    for name in _METADATA_ONLY:
        library.impl(name, _on_metadata(getattr(aten, name).default), "PrivateUse1")
    for name in (*_FACTORIES, *_worth_a_kernel()):
        library.impl(name, kernel(_overload(name)), "PrivateUse1")
    library.impl("_pin_memory", _pin_memory, "CPU")


def _overload(name: str) -> Op:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def _worth_a_kernel() -> list[str]:
    """Operators that torch would otherwise make of several: their own kernel is one trip through Python, not three."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    taken = {*_OWN, *_METADATA_ONLY, *_FACTORIES}
    found = []
    for full in torch._C._dispatch_get_all_op_names():
        name = full.removeprefix("aten::")
        if name == full or name in taken or name.partition(".")[0] in _LEAVE or has(full, "CompositeImplicitAutograd"):
            continue
        if has(full, "CompositeExplicitAutograd") or has(full, "CompositeExplicitAutogradNonFunctional"):
            op = _overload(name)
            # views, and what turns a tensor into a view of itself, stay with torch
            views = [value for value in op._schema.returns if value.alias_info and not value.alias_info.is_write]
            if not views and torch.Tag.inplace_view not in op.tags:
                found.append(name)
    return found


def _on_metadata(op: Op) -> Callable[..., Any]:
    redispatch = op.redispatch
    return lambda *args, **kwargs: redispatch(_CPU, *args, **kwargs)


# ---- copies


def _copy_(self: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    host = on_host(self) if self.device.type == NAME else self
    host.copy_(on_host(source) if source.device.type == NAME else source)
    return self


def _copy_from(self: Tensor, destination: Tensor, non_blocking: bool = False) -> Tensor:
    return _copy_(destination, self)


def _copy_from_and_resize(self: Tensor, destination: Tensor) -> Tensor:
    destination.resize_(self.shape)
    return _copy_(destination, self)


# ---- sizes and storages


def _resize_(self: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    nbytes = int(self.storage_offset() + math.prod(size)) * self.element_size()
    storage = self.untyped_storage()
    if nbytes > storage.nbytes():
        # a storage cannot grow in place here, so nobody else may be looking at it
        if storage.nbytes() and torch._C._storage_Use_Count(storage._cdata) > _ALONE:
            raise RuntimeError(
                f"resize_ to {list(size)} needs {nbytes} bytes and the storage, which another tensor shares, has "
                f"{storage.nbytes()}: the emulated neuron device grows only a storage of one tensor"
            )
        grown = new_storage(nbytes)
        grown_bytes = torch.empty(0, dtype=torch.uint8, device=NAME).set_(grown)
        old_bytes = torch.empty(0, dtype=torch.uint8, device=NAME).set_(storage)
        grown_bytes[: storage.nbytes()].copy_(old_bytes)
        self.set_(grown, self.storage_offset(), self.shape, self.stride())
    return aten.resize_.default.redispatch(_CPU, self, size, memory_format=memory_format)


# the tensor's own reference and the one the lookup makes
_ALONE = 2


def _require_neuron(source: Any) -> None:
    if source.device.type != NAME:
        raise RuntimeError(
            f"set_ of a neuron tensor to a storage on {source.device}: expected all tensors to be on the same device"
        )


def _set_storage_(self: Tensor, source: Any) -> Tensor:
    _require_neuron(source)
    return aten.set_.source_Storage.redispatch(_CPU, self, source)


def _set_storage_offset_(self: Tensor, source: Any, offset: int, size: Any, stride: Any = ()) -> Tensor:
    _require_neuron(source)
    return aten.set_.source_Storage_storage_offset.redispatch(_CPU, self, source, offset, size, stride)


def _set_tensor_(self: Tensor, source: Tensor) -> Tensor:
    _require_neuron(source)
    return aten.set_.source_Tensor.redispatch(_CPU, self, source)


def _set_(self: Tensor) -> Tensor:
    return self.set_(new_storage(0), 0, [0], [1])


# ---- choices torch makes by device


def _fused_sdp_choice(*args: Any, **kwargs: Any) -> int:
    # the fused attention operators have no CPU kernel under these names; matmul, softmax, matmul has
    return int(torch.nn.attention.SDPBackend.MATH.value)


def _pin_memory(self: Tensor, device: torch.device | None = None) -> Tensor:
    # asked for by data loaders; a copy to this device is no faster from pinned memory, and is_pinned() says it is not
    return self.clone()


def _record_stream(self: Tensor, stream: Any) -> None:
    """One stream, in order."""


_OWN: dict[str, Callable[..., Any]] = {
    "copy_": _copy_,
    "_copy_from": _copy_from,
    "_copy_from_and_resize": _copy_from_and_resize,
    "resize_": _resize_,
    "set_": _set_,
    "set_.source_Storage": _set_storage_,
    "set_.source_Storage_storage_offset": _set_storage_offset_,
    "set_.source_Tensor": _set_tensor_,
    "_fused_sdp_choice": _fused_sdp_choice,
    "record_stream": _record_stream,
    **CELLS,
}
