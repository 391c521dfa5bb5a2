"""Weights laid out as a kernel wants them, once, and kept as long as the Parameter they come from stays as it is."""

import ctypes
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Optional

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_post_hook

from .._ops import add_op_namespace_prefix, in_host_memory

# numbers that the content of a weight is summed up in; they stay in the first cache
LANES = 4096
# odd, so that no bit is lost: what fractional part of the golden ratio has in 64 bits
MULTIPLIER = -7046029254386353131


class UncountedWrite(UserWarning):
    """A weight was written in a way that PyTorch does not count, and that a device would not have noticed."""


class KeptWeights:
    """Copies of Parameters in another layout, each made at the first call that needs it.

    A copy serves as long as its Parameter is the same object with the same memory, dtype, shape and strides, and
    `_version` counts no write, and until an optimizer steps, as fused ones do not count theirs. Memory of the host is
    compared, too: there, a write past PyTorch's count (through .data, NumPy or DLPack) is found and warned of; on a
    device it needs clear(). A copy takes as much memory as its weight. It hangs on the Parameter and goes with it;
    deepcopy, pickle and state_dict leave it behind. Plain tensors, fake ones and other subclasses are never kept.

    enabled  False: no copy is made or used, each call lays out what it needs
    """

    def __init__(self) -> None:
        self.enabled = True
        self._name = add_op_namespace_prefix("kept_weights")
        self._all: weakref.WeakSet[_Copies] = weakref.WeakSet()
        self._hook: Optional[torch.utils.hooks.RemovableHandle] = None

    def get(
        self, weight: torch.Tensor, layout: tuple, lay_out: Callable[[torch.Tensor], torch.Tensor]
    ) -> Optional[torch.Tensor]:
        """lay_out(weight), made now or kept from an earlier call; None where this weight cannot be kept.

        layout  names what lay_out makes, in plain values
        """
        if not self.enabled or type(weight) is not torch.nn.Parameter:
            return None
        counted = _counted(weight)
        content = _content(weight) if in_host_memory(weight) else None
        if counted is None and content is None:
            return None
        made = self._current(weight, counted, content).made
        if layout not in made:
            # whatever mode this call is in, later ones may be in another
            with torch.inference_mode(False), torch.no_grad():
                made[layout] = lay_out(weight.detach())
        return made[layout]

    def _current(self, weight: torch.Tensor, counted: Optional[tuple], content: Optional[tuple]) -> "_Copies":
        """The copies of a weight as it is now, none of them made yet where it changed."""
        copies = weight.__dict__.get(self._name)
        if isinstance(copies, _Copies):
            if (copies.counted, copies.content) == (counted, content):
                return copies
            if copies.counted == counted is not None:
                _warn(weight)
        if self._hook is None:
            self._hook = register_optimizer_step_post_hook(lambda *_: self.clear())
        copies = weight.__dict__[self._name] = _Copies(weight, counted, content)
        self._all.add(copies)
        return copies

    def forget(self, weight: torch.Tensor) -> None:
        """Free the copies of one weight."""
        weight.__dict__.pop(self._name, None)

    def clear(self) -> None:
        """Free every copy; the next call of each weight makes it anew."""
        for copies in list(self._all):
            copies.forget()

    @property
    def nbytes(self) -> int:
        """Bytes of all copies."""
        return sum(copy.nbytes for copies in list(self._all) for copy in copies.made.values())


class _Copies:
    """The copies of one Parameter, and what it was when they were made."""

    def __init__(self, weight: torch.Tensor, counted: Optional[tuple], content: Optional[tuple]) -> None:
        # as long as this reference lives, no other storage has the address that `counted` names
        self.storage = StorageWeakRef(weight.untyped_storage())
        self.counted = counted
        self.content = content
        self.made: dict[tuple, torch.Tensor] = {}

    def forget(self) -> None:
        """Free the copies; equal to nothing any more."""
        self.counted, self.content, self.made = None, None, {}

    def __reduce__(self) -> tuple[Any, ...]:
        # a Parameter is pickled with its attributes, to where this class may be unknown
        return OrderedDict, ()


def _counted(weight: torch.Tensor) -> Optional[tuple]:
    """What PyTorch tells a weight by from another one and from what it was; None for an inference tensor."""
    if weight.is_inference():
        return None
    storage, shape, strides = weight.untyped_storage(), tuple(weight.shape), weight.stride()
    return weight._version, storage._cdata, weight.data_ptr(), weight.dtype, weight.device, shape, strides


def _content(weight: torch.Tensor) -> tuple:
    """Numbers that a change of any bit of the weight's memory changes, and that depend on where in it the bit is.

    Every LANES-th 64-bit word goes into one polynomial modulo 2^64. The memory is read past torch, so that nobody who
    records torch's operators counts this one.
    """
    count = 1 + sum((size - 1) * stride for size, stride in zip(weight.shape, weight.stride()))
    nbytes = count * weight.element_size() if weight.numel() else 0
    memory = (ctypes.c_ubyte * nbytes).from_address(weight.data_ptr())
    rest = bytes(memory[nbytes // 8 * 8 :])
    if nbytes < 8:
        return b"", rest, weight.shape, weight.stride()
    words = torch.frombuffer(memory, dtype=torch.int64, count=nbytes // 8).numpy()
    sums = words[:LANES].copy()
    for start in range(LANES, len(words), LANES):
        part = words[start : start + LANES]
        sums *= MULTIPLIER
        sums[: len(part)] += part
    return sums.tobytes(), rest, weight.shape, weight.stride()


def _warn(weight: torch.Tensor) -> None:
    name = str(weight.dtype).replace("torch.", "")
    warnings.warn(
        f"a weight {name}{list(weight.shape)} was written past PyTorch's count (.data, NumPy): a device would not "
        "notice; call kept_weights.clear() after such a write",
        UncountedWrite,
        stacklevel=2,
    )


kept_weights = KeptWeights()
