"""Running a kernel: binding arguments, its programs side by side, and the checks that need the whole run."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernels_neuron.arch import Arch, chip
from kernels_neuron.dtypes import as_tensor
from kernels_neuron.dtypes import dtype as as_dtype
from kernels_neuron.errors import KernelError, UsageError
from kernels_neuron.settings import Settings

from . import unwritten
from .allocator import fewer_collections, keep_freed_pages
from .arguments import bind, call, host_array, is_torch, kind_of, named_leaves, torch_device
from .context import Run, Scope, current_scope, launching, running, using
from .core import NeuronCore, whole
from .isa.split import require_triggered
from .locate import fail
from .memory import MemoryRegion, Storage
from .place import place
from .programs import BusyError, NeedsValuesError, Program, Programs, recording
from .races import overlapping_writes
from .tensor import NkiTensor
from .threads import torch_on_one_thread
from .trace import Trace
from .turns import ALONE, Seat, Turns

# `mode` is documented as ignored; public kernels pass the others
COMPILER_OPTIONS = {"mode", "debug_kernel", "experimental_flags", "show_compiler_tb"}


Schedule = tuple[tuple[str, str], ...]  # (later, earlier) names of instructions


class Kernel:
    """An `@nki.jit` function. Calling it with numpy arrays or torch tensors runs it in the simulator.

    kernel[n] launches it on n physical cores (LNC), 1 or 2. `target` is the one chip it is written for, None for any.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        grid: int | None = None,
        schedule: Schedule = (),
        target: str | None = None,
        programs: Programs | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.grid = grid
        self.schedule = schedule
        self.target = target
        self.programs = programs
        self._operator: Kernel | None = None

    def as_operator(self) -> Kernel:
        """The same, but for arguments of one kind its Python runs once, as behind an operator of TorchNeuron.

        The kind is the shapes and dtypes of tensors and the values of all else. See sim/programs.py.
        """
        if self._operator is None:
            self._operator = Kernel(self.function, self.grid, self.schedule, self.target, Programs())
        return self._operator

    def __getitem__(self, grid: Any) -> Kernel:
        if isinstance(grid, tuple) and len(grid) == 1:
            grid = grid[0]
        if not isinstance(grid, int) or isinstance(grid, bool) or grid not in (1, 2):
            raise UsageError(f"a kernel is launched on 1 or 2 physical cores, got [{grid!r}]")
        return Kernel(self.function, grid, self.schedule, self.target)

    def with_schedule(self, edges: Sequence[tuple[str, str | Sequence[str]]]) -> Kernel:
        """The kernel with waits added: (later, earlier) or (later, [earlier, ..]), by the `name` of instructions."""
        schedule = []
        for later, earlier in edges:
            schedule += [(later, name) for name in ([earlier] if isinstance(earlier, str) else earlier)]
        return Kernel(self.function, self.grid, (*self.schedule, *schedule), self.target)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        scope = current_scope()
        if scope.core is not None:
            if self.grid is not None:
                fail(
                    "nested-jit",
                    f"{self.__name__} was launched on [{self.grid}] inside a kernel, which has its cores already",
                    "call it without a grid: it then runs as a part of this kernel",
                )
            return self.function(*args, **kwargs)
        return launch(self, args, kwargs, scope)

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}{f'[{self.grid}]' if self.grid else ''}>"

    __name__: str


def jit(fn: Callable[..., Any] | None = None, *, platform_target: str | None = None, **options: Any) -> Any:
    """`nki.jit`, with or without parentheses. Options that steer the compiler are taken and have no effect.

    platform_target  the one chip the kernel runs on; a launch on another one is refused, see switch platform_target
    """
    unknown = set(options) - COMPILER_OPTIONS
    if unknown:
        raise UsageError(
            f"nki.jit takes no argument {', '.join(sorted(unknown))}",
            hint="set NEURON_PLATFORM_TARGET_OVERRIDE to choose a chip",
        )
    if fn is None:
        return functools.partial(jit, platform_target=platform_target)
    return fn if isinstance(fn, Kernel) else Kernel(fn, target=platform_target)


def simulate(
    kernel: Any,
    *args: Any,
    arch: str | Arch | None = None,
    settings: Settings | None = None,
    watch: str | Sequence[str] = (),
    **kwargs: Any,
) -> Any:
    """Run an `@nki.jit` function (or a plain one) in the simulator and return its outputs.

    kernel    the function, or `function[2]` for two physical cores
    args      numpy arrays or torch tensors of any strides, on the CPU or on the emulated device, become HBM tensors;
              everything else is passed as it is
    arch      "trn1", "trn2" or "trn3"; default: the enclosing scope's, else NEURON_PLATFORM_TARGET_OVERRIDE, else trn2
    watch     tiles to print at each write, as Settings.watch; instead of those of the settings
    returns   arrays if numpy came in, tensors on the same device if torch came in; a tuple where the kernel returns one

    Raises KernelError, located at the kernel's line, where the chip would refuse the kernel.
    """
    scope = current_scope()
    settings = settings or scope.settings
    if watch:
        settings = replace(settings, watch=watch)
    with using(chip(arch) if arch is not None else scope.arch, settings) as runs:
        outputs = jit(kernel)(*args, **kwargs)
    scope.runs.extend(runs)
    return outputs


MAX_RANKS = 64  # logical cores of one node, a trn2.48xlarge at LNC 2; kernels of the public library run on as many


def simulate_ranks(
    kernel: Any,
    arguments: Sequence[Sequence[Any] | Mapping[str, Any]],
    arch: str | Arch | None = None,
    settings: Settings | None = None,
) -> list[Any]:
    """Run a kernel on several ranks at once, so that nki.collectives work; the outputs by rank.

    arguments  of each rank, for 1 to 64 ranks: a sequence of positional ones, or a mapping by name
    """
    if not 1 <= len(arguments) <= MAX_RANKS:
        raise UsageError(f"simulate_ranks takes the arguments of 1 to {MAX_RANKS} ranks, got {len(arguments)}")
    calls = [((), dict(each)) if isinstance(each, Mapping) else (tuple(each), {}) for each in arguments]
    scope = current_scope()
    with using(chip(arch) if arch is not None else scope.arch, settings or scope.settings) as runs:
        scope_here = current_scope()
        with launching(scope_here), fewer_collections(), torch_on_one_thread():
            outputs = launch_ranks(jit(kernel), calls, scope_here)
    scope.runs.extend(runs)
    return outputs


def launch(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any], scope: Scope) -> Any:
    """Run all programs of one launch and return the outputs in the caller's kind."""
    with launching(scope), fewer_collections(), torch_on_one_thread():
        if kernel.programs is not None and kernel.grid in (None, 1) and scope.settings.lnc == 1:
            return _launch_program(kernel, kernel.programs, args, kwargs, scope)
        return launch_ranks(kernel, [(args, kwargs)], scope)[0]


def _launch_program(
    kernel: Kernel, programs: Programs, args: tuple[Any, ...], kwargs: dict[str, Any], scope: Scope
) -> Any:
    """The same by the program of an earlier launch, or one that is made now."""
    settings = scope.settings
    # a debugger stops in the kernel, so it has to run, and with values
    if not settings.reuse or not settings.execute or settings.watch or sys.gettrace() is not None:
        return launch_ranks(kernel, [(args, kwargs)], scope)[0]
    arguments = bind(kernel.__name__, kernel.function, args, kwargs)
    try:
        kinds = tuple([(name, kind_of(value)) for name, value in arguments.items()])
        key = (id(scope.arch), settings.nki, settings.seed, *sorted(settings.switches.items()), kinds)
        hash(key)
    except TypeError:
        key = None
    if key is not None:
        found = programs.get(key, lambda: _compile(kernel, arguments, scope))
        if found is not None:
            try:
                return found.launch(kernel, arguments, scope)
            except BusyError:
                pass
            except KernelError:
                # the kernel's own run says where
                programs.give_up(key)
    return launch_ranks(kernel, [(args, kwargs)], scope)[0]


def _compile(kernel: Kernel, arguments: dict[str, Any], scope: Scope) -> _Compiled | None:
    """The program of a run without values; None where there is none to make, or where the run fails."""
    rank = _Rank(arguments)
    without_values = replace(scope, settings=replace(scope.settings, execute=False))
    try:
        rank.seat(without_values, [ALONE])
        (core,) = rank.cores
        with recording(core):
            _run(kernel, [rank], without_values)
        if not core.repeats():
            return None
        steps, core.steps = core.steps or (), None
        return _Compiled(Program(core, steps, rank.bound), replace(rank, arguments={}), scope.arch)
    except (KernelError, NeedsValuesError):
        # the run with values will fail in the same way, or find them
        return None


@dataclass
class _Compiled:
    """A program with the launch it was made of."""

    program: Program
    rank: _Rank
    arch: Arch  # kept, so that its id stays its own

    def __len__(self) -> int:
        return len(self.program)

    def launch(self, kernel: Kernel, arguments: dict[str, Any], scope: Scope) -> Any:
        """Run it on `arguments` and return the outputs in the caller's kind."""
        leaves = named_leaves(arguments, "")
        arrays = {name: host_array(value, name) for name, value in leaves if name in self.rank.bound}
        with self.program.played(arrays):
            return _finish(kernel, replace(self.rank, arguments=arguments), scope)


def launch_ranks(kernel: Kernel, calls: Sequence[tuple[tuple[Any, ...], dict[str, Any]]], scope: Scope) -> list[Any]:
    """Run one launch per rank, each with its own arguments, side by side; the outputs by rank."""
    keep_freed_pages()
    lnc = kernel.grid or scope.settings.lnc
    if lnc == 2 and scope.arch.generation < 3:
        raise KernelError(
            f"{scope.arch.name} has no logical cores of two, launch the kernel without a grid", rule="lnc"
        )
    ranks = [_Rank(bind(kernel.__name__, kernel.function, args, kwargs)) for args, kwargs in calls]
    for rank, seats in zip(ranks, _seats(len(ranks), lnc), strict=True):
        rank.seat(scope, seats)
    _run(kernel, ranks, scope)
    return [_finish(kernel, rank, scope) for rank in ranks]


def _run(kernel: Kernel, ranks: list[_Rank], scope: Scope) -> None:
    """Run the seated programs of a launch, then the checks that need the whole run."""
    _require_target(kernel, ranks[0].cores[0])
    _play(kernel, ranks, scope)
    for rank in ranks:
        for core in rank.cores:
            require_triggered(core)
            _apply_schedule(kernel, core.trace)
            place(core.trace, scope.arch, spill=core.switches["sbuf_overflow"] == "spill")
        if len(rank.cores) > 1:
            traces = [core.trace for core in rank.cores]
            chosen = rank.cores[0].switches
            overlapping_writes(
                traces,
                barrier_orders=str(chosen["barrier_orders"]),
                sendrecv_orders=str(chosen["sendrecv_orders"]),
            )


def _require_target(kernel: Kernel, core: NeuronCore) -> None:
    if kernel.target is None:
        return
    if core.switches["platform_target"] == "refuse" or chip(kernel.target).name != core.arch.name:
        raise KernelError(
            f"{kernel.__name__} is decorated with nki.jit(platform_target={kernel.target!r}), "
            f"the run is on {core.arch.name}",
            rule="platform-target",
            hint="run it on the chip it names, or take the argument away",
        )


@dataclass
class _Rank:
    """One launch on one logical core: its arguments, what they are bound to, its programs and their results."""

    arguments: dict[str, Any]
    bound: dict[str, Storage] = field(default_factory=dict)
    cores: list[NeuronCore] = field(default_factory=list)
    values: list[dict[str, Any]] = field(default_factory=list)
    result: Any = None

    def seat(self, scope: Scope, seats: list[Seat]) -> None:
        """Make a core per program, with the arguments bound once for all of them."""
        shared: list[Storage] = []
        for program, seat in enumerate(seats):
            core = NeuronCore(scope.arch, scope.settings, program, len(seats), shared, seat)
            self.values.append(
                {name: _to_device(value, name, core, self.bound) for name, value in self.arguments.items()}
            )
            self.cores.append(core)


def _seats(ranks: int, lnc: int) -> list[list[Seat]]:
    if ranks * lnc == 1:
        return [[ALONE]]
    of_rank = tuple(tuple(range(rank * lnc, (rank + 1) * lnc)) for rank in range(ranks))
    names = [
        f"program {program}" if ranks == 1 else f"rank {rank}" if lnc == 1 else f"program {program} of rank {rank}"
        for rank in range(ranks)
        for program in range(lnc)
    ]
    turns = Turns(names)
    return [[Seat(turns, index, rank, of_rank[rank], of_rank) for index in of_rank[rank]] for rank in range(ranks)]


def _play(kernel: Kernel, ranks: list[_Rank], scope: Scope) -> None:
    def body(core: NeuronCore, values: dict[str, Any]) -> Callable[[], Any]:
        def run() -> Any:
            with running(core, scope):
                return call(kernel.function, values)

        return run

    bodies = [body(core, values) for rank in ranks for core, values in zip(rank.cores, rank.values, strict=True)]
    turns = ranks[0].cores[0].seat.turns
    results = [bodies[0]()] if turns is None else turns.run(bodies)
    for rank in ranks:
        rank.result = results[rank.cores[0].seat.index]


def _apply_schedule(kernel: Kernel, trace: Trace) -> None:
    for later, earlier in kernel.schedule:
        for name in (later, earlier):
            if name not in trace.named:
                raise KernelError(
                    f"the schedule of {kernel.__name__} names {name!r}, no instruction was called with name={name!r}",
                    rule="schedule-name",
                    hint=f"names given are {', '.join(sorted(trace.named)) or 'none'}",
                )
        trace.edges += [(first, second) for first in trace.named[earlier] for second in trace.named[later]]


def _finish(kernel: Kernel, rank: _Rank, scope: Scope) -> Any:
    written = _written_arguments(rank)
    nothing = rank.result is None and bool(written)  # what the kernel gives is in its arguments
    outputs = [] if nothing else _outputs(kernel, rank.result, rank.cores)
    _copy_back(rank.arguments, written, scope.settings.execute)
    scope.runs.append(Run(kernel.__name__, scope.arch, len(rank.cores), [core.trace for core in rank.cores]))
    if nothing:
        return None
    device = torch_device(rank.arguments)
    given: set[Storage] = set()  # whose memory the caller has got
    host = [_to_host(tensor, device, given) for tensor in outputs]
    return tuple(host) if isinstance(rank.result, (tuple, list)) else host[0]


# ---- arguments


def _to_device(value: Any, name: str, core: NeuronCore, bound: dict[str, Storage]) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_to_device(item, f"{name}.{i}", core, bound) for i, item in enumerate(value))
    if isinstance(value, dict):
        return {key: _to_device(item, f"{name}.{key}", core, bound) for key, item in value.items()}
    if not (isinstance(value, np.ndarray) or is_torch(value)):
        return value
    if name in bound:
        core.adopt_input(bound[name])
    else:
        array = host_array(value, name)
        # NKI simulator guide: arguments lie in nl.hbm on one core, in nl.shared_hbm on two
        buffer = MemoryRegion.shared_hbm if core.programs > 1 else MemoryRegion.private_hbm
        bound[name] = core.bind_input(array, as_dtype(array.dtype), name, buffer)
    return whole(bound[name])


def _written_arguments(rank: _Rank) -> dict[str, Storage]:
    """The arguments that the kernel writes into, by name."""
    return {name: storage for name, storage in rank.bound.items() if storage.stored}


def _copy_back(arguments: dict[str, Any], written: dict[str, Storage], execute: bool) -> None:
    """Give the caller what the kernel wrote into its arguments; a price-only run has computed nothing."""
    for name, value in named_leaves(arguments, ""):
        storage = written.get(name)
        if storage is None or not execute:
            continue
        values = whole(storage).array()
        if not isinstance(value, np.ndarray):
            # through torch, which widens int32 to int64 where NKI had no wider integer
            value.detach().copy_(as_tensor(values))
        elif value.flags.writeable:
            value[...] = values
        else:
            raise UsageError(f"the kernel writes into {name}, which is a read-only array", hint="pass a copy")


# ---- outputs


def _outputs(kernel: Kernel, result: Any, cores: list[NeuronCore]) -> list[NkiTensor]:
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    if not outputs or not all(isinstance(output, NkiTensor) for output in outputs):
        raise KernelError(
            f"{kernel.__name__} returns one tensor or a tuple of tensors, got {result!r}", rule="return-type"
        )
    private = cores[0].switches["output_buffer"] == "hbm"
    for output in outputs:
        shared = output.buffer is MemoryRegion.shared_hbm or output.storage.is_input
        if not (shared or (private and not output.on_chip)):
            raise KernelError(
                f"{kernel.__name__} returns {output!r}, outputs live in shared HBM",
                rule="output-buffer",
                hint="allocate it with buffer=nl.shared_hbm and dma_copy into it",
            )
        _check_fully_written(kernel, output, cores[0])
    return outputs


def _check_fully_written(kernel: Kernel, output: NkiTensor, core: NeuronCore) -> None:
    written = output.storage.written
    missing = written.missing_bytes()
    if missing:
        _, byte = written.first_missing()
        index = tuple(
            int(i) for i in np.unravel_index(byte // output.storage.dtype.itemsize, output.storage.tile.shape)
        )
        origin = output.storage.unwritten_read
        what = f"that depend on unwritten memory ({origin})" if origin else "never written"
        raise KernelError(
            f"{kernel.__name__} returns {output!r} with {missing} of {output.storage.tile.nbytes} bytes {what}, "
            f"the first at element {list(index)}",
            rule="unwritten-read" if origin else "unwritten-output",
            hint=unwritten.HINT if origin else "store every row and column, the ragged last tile too",
            **core.trace.located(output.storage.tile.where),
        )


def _to_host(tensor: NkiTensor, device: Any, given: set[Storage]) -> Any:
    """An output in the caller's kind: a tensor on `device`, or an array where that is None.

    It is the memory of the allocation where that is all the output's and is in nobody's hands, else a copy.
    """
    storage = tensor.storage
    if not storage.has_values:
        array = np.zeros(tensor.shape, tensor.dtype.numpy)
    elif storage.look().shared or storage in given or tensor.shape != storage.tile.shape or not tensor.is_contiguous():
        array = np.array(tensor.array(), copy=True)
    else:
        array = tensor.array()
        given.add(storage)
    return array if device is None else as_tensor(array).to(device)
