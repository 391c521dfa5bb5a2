"""kernelize and unkernelize: decide for every module, load what is needed, then swap; nothing changes before that."""

import re
import sys
import warnings
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from kernels_neuron.device import is_enabled
from kernels_neuron.errors import SwapError, UsageError

from .attention import restore_implementation
from .check import check_model
from .guard import Swap, detach
from .kernel import Choice, Kernels, Sources
from .plan import STATE, Plan, State

MODES = ("inference", "training")

Model = TypeVar("Model", bound=nn.Module)


class SimulatorWarning(UserWarning):
    """Said once a process: there is no device here, so kernels run in the simulator."""


def kernelize(
    model: Model,
    *,
    device: str | torch.device = "neuron",
    mode: str | None = None,
    kernels: str | Mapping[str, Choice] | None = None,
    strict: bool = False,
    check: Any = None,
    sources: Sources | None = None,
) -> Model:
    """Replace, in this model only and in place, every layer a kernel serves; returns the model.

    device   "neuron" or "neuron:<index>"
    mode     None decides at each call from module.training; "inference" never serves a training call;
             "training" swaps only what has a backward
    kernels  an organization, or a dict from kernel to "org/repo@revision", a folder, a loaded module, or None to leave
             it out; None: `sources`, the artifacts that come with the installation
    strict   raise SwapError where a module or, later, a call would keep the original
    check    inputs (a tensor, a tuple, a dict) on which original and swapped are compared, see report()
    sources  kernel name -> loaded module, as a mapping or a function

    A module keeps its class, its parameters and their names. A model that is kernelized already is undone first.
    Nothing is changed when this raises, but for a check that fails, which leaves the model kernelized.
    """
    if not isinstance(model, nn.Module):
        raise UsageError(f"kernelize takes a torch.nn.Module, got {type(model).__name__}")
    device_name = _checked_device(device)
    if mode is not None and mode not in MODES:
        raise UsageError(f"mode is 'inference', 'training' or None, got {mode!r}")
    found = Kernels(kernels, sources)
    plan = Plan(found, State(device_name, mode, strict, found.unused))
    plan.decide(model)
    if strict:
        _require_all(plan)

    unkernelize(model)
    plan.apply(model)
    _say_where_kernels_run()
    if check is not None:
        check_model(model, check)
    return model


def unkernelize(model: Model) -> Model:
    """Give every module its own forward back; outputs are bit-equal to before. A plain model is left as it is.

    Copies of its parameters that kernels keep are freed.
    """
    attention, kernels = [], set()
    for module in model.modules():
        record = detach(module)
        if isinstance(record, Swap):
            kernels.add(record.service.kernel)
            if record.kind == "attention":
                attention.append(module)
        module.__dict__.pop(STATE, None)
    restore_implementation(attention)
    for kept in filter(None, (getattr(kernel.module, "kept_weights", None) for kernel in kernels)):
        for parameter in model.parameters():
            kept.forget(parameter)
    return model


def _checked_device(device: object) -> str:
    name = str(device) if isinstance(device, str | torch.device) else repr(device)
    if not re.fullmatch(r"neuron(:\d+)?", name):
        raise UsageError(f"device is 'neuron' or 'neuron:<index>', got {name!r}")
    return name


def _require_all(plan: Plan) -> None:
    kept = [record for _, record in plan.kept if record.refusal.reason in ("no-kernel", "shape", "dtype", "hooked")]
    kept = [record for record in kept if record.kind != "other"]
    if kept:
        lines = "; ".join(f"{r.path}: {r.refusal.reason}, {r.refusal.detail}" for r in kept[:5])
        more = f"; and {len(kept) - 5} more" if len(kept) > 5 else ""
        raise SwapError(
            f"{len(kept)} modules that could be served cannot be swapped: {lines}{more}",
            hint="kernelize with strict=False to keep them, or leave their kernel out with kernels={name: None}",
        )
    if not plan.swaps:
        raise SwapError("no module of this model is served by a kernel", hint="kernelize with strict=False to see why")


_said_where_kernels_run = False


def _say_where_kernels_run() -> None:
    global _said_where_kernels_run
    neuron = getattr(torch, "neuron", None) if "torch_neuronx" in sys.modules else None
    has_device = neuron is not None and neuron.is_available() and not is_enabled()
    if _said_where_kernels_run or has_device:
        return
    _said_where_kernels_run = True
    warnings.warn(
        "no Neuron device on this machine: kernels run in the simulator, which is exact but slow",
        SimulatorWarning,
        stacklevel=3,
    )
