"""Running cases on torch.device("neuron"), by TorchNeuron's documented interface; see docs/benchmarks.md.

Nobody has run this on a Trainium yet: what it was tried on is the emulated device.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kernels_neuron.arch import default_chip
from kernels_neuron.artifact import import_variant
from kernels_neuron.device import is_enabled
from kernels_neuron.errors import UsageError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import Run, using

from .cases import Filter, Task
from .executors import run_all
from .timing import Timer, Timing, time_calls
from .verify import KERNEL_RAISES, SWITCHES, Outcome, VerifyRow, reference_of, row_of

DEVICE = "neuron"
RUNNERS = ("simulator", "device")


@dataclass(frozen=True)
class Device:
    """The device of this process: physical cores per logical core, and whether it is the emulated one."""

    lnc: int
    emulated: bool


def find_device() -> Device:
    """The device, or UsageError where there is none."""
    import torch

    neuron = getattr(torch, DEVICE, None)
    if neuron is None or not neuron.is_available():
        raise UsageError(
            "there is no Neuron device in this process", hint="run it on a Trainium; `kernels-neuron doctor` says why"
        )
    utils = getattr(sys.modules.get("torch_neuronx"), "utils", None)
    degree = getattr(utils, "get_logical_neuron_cores", lambda: 1)
    return Device(int(degree()), is_enabled())


def measuring_device() -> Device:
    """The device, if its times mean something: the emulated one's are the simulator's own."""
    device = find_device()
    if device.emulated:
        raise UsageError("the emulated device has no time to measure", hint="leave --runner out to estimate")
    return device


def checked_runner(name: str | None) -> str:
    """The runner called "simulator" or "device"; None chooses the device where there is a real one."""
    import torch

    if name is None:
        neuron = getattr(torch, DEVICE, None)
        return "device" if neuron is not None and not is_enabled() and neuron.is_available() else "simulator"
    if name not in RUNNERS:
        raise UsageError(f"runner is {' or '.join(RUNNERS)}, got {name!r}")
    return name


def only_this_device(keep: Filter, device: Device) -> Filter:
    """`keep` for one chip, that of NEURON_PLATFORM_TARGET_OVERRIDE unless it names one, and the machine's cores."""
    archs = keep.archs or (default_chip().name,)
    if len(archs) > 1:
        raise UsageError(f"a device is one chip, got {', '.join(archs)}", hint="give --arch once")
    if keep.lncs and keep.lncs != (device.lnc,):
        raise UsageError(
            f"this machine's logical cores are of {device.lnc} physical ones, got lnc {keep.lncs[0]}",
            hint="leave --lnc out, or set NEURON_LOGICAL_NC_CONFIG",
        )
    return Filter(keep.workloads, keep.dtypes, archs, (device.lnc,))


def verify_on_device(tasks: Sequence[Task], on_row: Callable[[VerifyRow], None] | None = None) -> list[VerifyRow]:
    """The rows of `verify`, run on the device of this process."""
    return run_all(_verify_row, tasks, workers=1, on_row=on_row)


def _verify_row(task: Task) -> VerifyRow:
    return row_of(task, run_on_device(task)[0])


def run_on_device(task: Task, timer: Timer | None = None) -> tuple[Outcome, Timing | None]:
    """Call the built op on device tensors and compare with the reference in float64.

    timer  None: do not time; else the outcome says whether the times are worth anything
    """
    import torch

    case = task.case
    module = import_variant(task.variant)
    reference = reference_of(module, case.kernel, case.entry)
    inputs = case.make_inputs()
    entry = getattr(module, case.entry)
    runs: list[Run] = []

    def call() -> Any:
        return case.call(entry, on_device)

    try:
        # the scope is what the emulated device runs kernels in; a real one does not look at it
        with using(task.arch, Settings(lnc=task.lnc, switches=SWITCHES, reuse=False)) as runs:
            on_device = case.with_parameters({name: _moved(tensor) for name, tensor in inputs.items()})
            # timed first, so that the first call of all is the one that compiles
            timing = time_calls(call, getattr(torch, DEVICE).synchronize, timer) if timer is not None else None
            out = call().cpu()
            comparison = case.compare(reference, inputs, out)
            outcome = Outcome(comparison, runs, None, inputs, reference, out.numel() * out.element_size(), True)
    except KERNEL_RAISES as error:
        return Outcome(None, runs, f"{type(error).__name__}: {error}", inputs, reference, on_device=True), None
    return outcome, timing


def _moved(tensor: Any) -> Any:
    """The tensor on the device in the same strides, over a copy of all the memory under it."""
    if tensor is None:
        return None
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    memory = tensor.as_strided((count,), (1,), 0).to(DEVICE)
    return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
