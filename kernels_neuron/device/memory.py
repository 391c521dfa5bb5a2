"""One memory, two devices: a tensor seen from the other side, without a copy.

torch lets Python create a tensor on the device slot for outside backends in one way that keeps a real storage under it:
DLPack, whose device type kDLExtDev it reads as that slot. So a tensor crosses by exporting it, changing the device in
the exported struct, and importing it. What comes out is a plain torch.Tensor that keeps the first one alive.
"""

import ctypes

import torch

# DLPack: struct DLTensor { void* data; struct { int32_t device_type; int32_t device_id; }; ... }
_NAME = b"dltensor"
_DEVICE_TYPE = ctypes.sizeof(ctypes.c_void_p)
_CPU, _EXTERNAL = 1, 12

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_int32_at = ctypes.c_int32.from_address
_export = torch._C._to_dlpack
_import = torch._C._from_dlpack


def _cross(tensor: torch.Tensor, device_type: int) -> torch.Tensor:
    capsule = _export(tensor)
    _int32_at(_pointer(capsule, _NAME) + _DEVICE_TYPE).value = device_type
    return _import(capsule)


def on_neuron(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a dense CPU tensor as a neuron tensor, with a storage of its own."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        kind = "quantized" if tensor.is_quantized else str(tensor.layout)
        raise NotImplementedError(f"the emulated neuron device has no {kind} tensors, only dense ones")
    if tensor._is_zerotensor():
        # zeros that autograd has not stored anywhere yet
        tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
    return _cross(tensor.resolve_conj().resolve_neg(), _EXTERNAL)


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a neuron tensor as a CPU tensor: same values, strides and dtype, no gradient."""
    host = _cross(tensor, _CPU)
    # the export takes the bytes; that they stand for conjugates or negatives is said by the tensor
    if tensor.is_conj():
        host = torch._conj(host)
    return torch._neg_view(host) if tensor.is_neg() else host


def new_storage(nbytes: int) -> torch.UntypedStorage:
    """An uninitialized neuron storage of so many bytes."""
    return on_neuron(torch.empty(nbytes, dtype=torch.uint8)).untyped_storage()
