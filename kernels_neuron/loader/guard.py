"""What stands in a swapped module: per call, the kernel or the original, and the count of each."""

import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any, NoReturn

import torch
from torch import nn

from kernels_neuron.errors import SwapError

from .kernel import Kernel
from .table import Refusal, serve_any

RECORD = "_kernels_neuron"

Observer = Callable[["Swap", nn.Module, tuple, dict, Any], None]


class Record:
    """State that hangs on a module of a kernelized model: copied with the model, refused by pickle."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "Record":
        twin = object.__new__(type(self))
        memo[id(self)] = twin
        twin.__dict__.update({name: copy.deepcopy(value, memo) for name, value in self.__dict__.items()})
        return twin

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise SwapError(
            "a kernelized model cannot be pickled, its kernels are code of this process",
            hint="call unkernelize(model) first, or save model.state_dict() or model.save_pretrained(folder)",
        )


@dataclass(frozen=True)
class Service:
    """How a kernel stands in for a module.

    kernel_call    (module, *args) -> output, by the kernel
    original       (module, *args) -> output, as the class computes it
    flops          (module, args, output) -> useful operations of a call
    has_backward   whether gradients pass through the kernel
    refuse         (module, *args) -> why this call is none for the kernel, or None
    """

    kernel: Kernel
    kernel_call: Callable[..., Any]
    original: Callable[..., Any]
    flops: Callable[..., int]
    has_backward: bool
    refuse: Callable[..., Refusal | None] = serve_any


class Swap(Record):
    """One swapped module: what serves it, when that may run, and what happened so far.

    mode     as in kernelize
    strict   raise where a call would fall back
    partner  on the product of a fused MLP: the Swap of the fused call, which shares this one's row in a report
    """

    def __init__(self, path: str, kind: str, class_name: str, service: Service, *, mode: str | None, strict: bool):
        self.path = path
        self.kind = kind
        self.class_name = class_name
        self.service = service
        self.mode = mode
        self.strict = strict
        self.former: Any = None
        self.partner: Swap | None = None
        self.bypass = False
        self.observer: Observer | None = None
        self.errors: dict[str, float] = {}
        self.reset()

    def reset(self) -> None:
        """Forget the calls seen so far."""
        self.calls = 0
        self.fallbacks: dict[str, int] = {}
        self.first_fallback = ""
        self.flops = 0
        self.kernel_flops = 0

    def refusal(self, module: nn.Module) -> Refusal | None:
        """Why the kernel may not serve this module at this moment, whatever the input."""
        if not module.training:
            return None
        # grad mode is not asked: re-entrant checkpointing runs the first forward without gradients and the
        # second one with them, and both have to compute the same
        if not self.service.has_backward:
            return Refusal("training-needs-backward", "the kernel has no backward")
        if self.mode == "inference":
            return Refusal("mode", 'kernelized with mode="inference"')
        return None

    def call(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel, or the original where the kernel refuses; count it."""
        self.calls += 1
        if self.bypass:
            out = self.service.original(module, *args, **kwargs)
            self._observe(module, args, kwargs, out)
            return out
        refusal = self.refusal(module) or _autocast_refusal(args) or self.service.refuse(module, *args, **kwargs)
        cause: Exception | None = None
        if refusal is None:
            try:
                out = self.service.kernel_call(module, *args, **kwargs)
            except self.service.kernel.unsupported as error:
                refusal, cause = Refusal(getattr(error, "reason", None) or "shape", str(error)), error
            else:
                self._count_flops(module, args, out, by_kernel=True)
                self._observe(module, args, kwargs, out)
                return out
        self._note_fallback(refusal, args, cause)
        out = self.service.original(module, *args, **kwargs)
        self._count_flops(module, args, out, by_kernel=False)
        return out

    def _note_fallback(self, refusal: Refusal, args: tuple, cause: Exception | None) -> None:
        if self.strict:
            raise SwapError(
                f"{self.path or self.class_name}: the kernel does not serve this call: {refusal.detail}",
                hint="kernelize with strict=False to run such calls on the original layer",
            ) from cause
        self.fallbacks[refusal.reason] = self.fallbacks.get(refusal.reason, 0) + 1
        self.first_fallback = self.first_fallback or _describe(refusal, args)

    def _count_flops(self, module: nn.Module, args: tuple, out: Any, *, by_kernel: bool) -> None:
        flops = self.service.flops(module, args, out)
        self.flops += flops
        self.kernel_flops += flops if by_kernel else 0

    def _observe(self, module: nn.Module, args: tuple, kwargs: dict, out: Any) -> None:
        if self.observer is not None:
            self.observer(self, module, args, kwargs, out)


class Fused(Record):
    """On an MLP whose first product and activation run as one kernel; the counts are the first layer's Swap."""

    def __init__(self, swap: Swap, first: str, activation: str, last: str) -> None:
        self.swap = swap
        self.first = first
        self.activation = activation
        self.last = last
        self.former: Any = None

    def call(self, module: nn.Module, hidden_states: torch.Tensor) -> torch.Tensor:
        """last(activation(first(x))); child by child where somebody's hook waits on one of the fused two."""
        first, activation = getattr(module, self.first), getattr(module, self.activation)
        if _is_hooked(first) or _is_hooked(activation):
            return getattr(module, self.last)(activation(first(hidden_states)))
        return getattr(module, self.last)(self.swap.call(module, hidden_states))


class Kept(Record):
    """A module that keeps its forward: the reason, and the operations its calls took where they can be told."""

    def __init__(self, path: str, kind: str, class_name: str, refusal: Refusal) -> None:
        self.path = path
        self.kind = kind
        self.class_name = class_name
        self.refusal = refusal
        self.calls = 0
        self.flops = 0
        self.handle: Any = None


def _is_hooked(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "_hf_hook" in module.__dict__
        or nn.modules.module._has_any_global_hook()
    )


def _autocast_refusal(args: tuple) -> Refusal | None:
    x = args[0] if args else None
    # torch knows no autocast of meta tensors and raises when asked
    if isinstance(x, torch.Tensor) and not x.is_meta and torch.is_autocast_enabled(x.device.type):
        # autocast decides dtypes per torch op, and an artifact's op is none it knows
        return Refusal("dtype", "inside torch.autocast")
    return None


def _describe(refusal: Refusal, args: tuple) -> str:
    shapes = ", ".join(
        f"{str(a.dtype).removeprefix('torch.')}{list(a.shape)}" for a in args if isinstance(a, torch.Tensor)
    )
    return f"{refusal.detail} ({shapes})" if shapes else refusal.detail


@functools.cache
def _forward_for(cls: type) -> Callable[..., Any]:
    """The forward that a swapped module of `cls` gets; it keeps the signature that tools inspect."""

    names = list(inspect.signature(cls.forward).parameters)[1:]  # type: ignore[attr-defined]

    @functools.wraps(cls.forward)  # type: ignore[attr-defined]
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        # by position, since a layer may call the argument by another name than the class it serves
        while kwargs and len(args) < len(names) and names[len(args)] in kwargs:
            args += (kwargs.pop(names[len(args)]),)
        return self.__dict__[RECORD].call(self, *args, **kwargs)

    forward.is_kernels_neuron = True  # type: ignore[attr-defined]
    return forward


def _is_ours(forward: object) -> bool:
    return getattr(getattr(forward, "__func__", None), "is_kernels_neuron", False)


def foreign_forward(module: nn.Module) -> bool:
    """Whether somebody else put a forward of their own on this instance."""
    slot = "_old_forward" if "_hf_hook" in module.__dict__ else "forward"
    forward = module.__dict__.get(slot)
    if _is_ours(forward):
        forward = module.__dict__[RECORD].former
    return forward is not None and getattr(forward, "__func__", None) is not type(module).forward


def attach(module: nn.Module, record: Swap | Fused) -> None:
    """Put `record` in the place of the instance's forward, below accelerate's hooks where there are any."""
    slot = "_old_forward" if "_hf_hook" in module.__dict__ else "forward"
    record.former = module.__dict__.get(slot)
    module.__dict__[slot] = MethodType(_forward_for(type(module)), module)  # type: ignore[arg-type]
    module.__dict__[RECORD] = record


def detach(module: nn.Module) -> Record | None:
    """Take the record off a module and give it its former forward back; None where there was no record."""
    record = module.__dict__.pop(RECORD, None)
    if isinstance(record, Kept) and record.handle is not None:
        record.handle.remove()
    former = getattr(record, "former", None)
    # hooks may have come or gone since the swap, and with them the slot our forward is in
    if _is_ours(module.__dict__.get("_old_forward")):
        module.__dict__["_old_forward"] = former or MethodType(type(module).forward, module)
    if _is_ours(module.__dict__.get("forward")):
        if former is None:
            del module.__dict__["forward"]
        else:
            module.__dict__["forward"] = former
    return record
