"""Instructions with which the two physical cores of a logical core wait for each other."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernels_neuron.sim.core import NeuronCore, Step
from kernels_neuron.sim.locate import caller, fail
from kernels_neuron.sim.tensor import NkiTensor
from kernels_neuron.sim.unwritten import forget_elements, written_elements

from .dma import partition_runs, transfer_of
from .enums import dma_engine as DmaEngine
from .enums import engine as Engine
from .prices import PRICES, dma, facts
from .rules import HBM, SBUF, require_buffer, require_enum, require_generation, require_tensor
from .table import instruction

# bytes per partition that GpSimdE's own DMA moves, by element size; NKI ISA reference, sendrecv
_GPSIMD_DMA_BYTES = {4: 1024, 2: 512, 1: 256}


def _here() -> str:
    file, line = caller()
    return f"{file.rsplit('/', 1)[-1]}:{line}"


@instruction
def core_barrier(
    core: NeuronCore,
    data: NkiTensor,
    cores: Any,
    engine: Engine = Engine.gpsimd,
    name: str | None = None,
) -> Iterator[Step]:
    """Wait until both cores are here: what either of them did to `data` before is done, for both.

    Operands: data in shared HBM; cores (0, 1), or one core alone, which waits for nobody. trn2 on, launched on 2 cores.
    Engines: blocks `engine` alone, GpSimdE unless told otherwise. Accesses to other tensors are not ordered (switch
    barrier_orders).
    Source: NKI ISA reference, core_barrier.
    """
    require_generation("core_barrier", core, 3)
    require_tensor("core_barrier", "data", data)
    require_enum("core_barrier", "engine", engine, Engine)
    listed = tuple(cores) if isinstance(cores, Sequence) else (cores,)
    if any(not isinstance(number, (int, np.integer)) or not 0 <= number < 2 for number in listed) or not listed:
        fail("barrier-cores", f"core_barrier takes cores (0, 1), got {cores!r}")
    if len(set(listed)) == 2 and core.programs != 2:
        fail("barrier-cores", "core_barrier takes cores (0, 1), the kernel runs on one core", "launch it as kernel[2]")
    chosen = "gpsimd" if engine is Engine.unknown else engine.name
    members = frozenset(core.seat.programs[number] for number in set(listed))
    meeting: tuple[object, ...] = ()
    if core.seat.index in members:
        meeting = ("core_barrier", members)
        core.seat.meet("core_barrier", members, None, "core_barrier", _here())
    price = PRICES["core_barrier"](core.arch, facts(chosen, data))
    yield Step(chosen, price, writes=(data,), marks=False, meets=True, meeting=meeting)


@instruction
def sendrecv(
    core: NeuronCore,
    src: NkiTensor,
    dst: NkiTensor,
    send_to_rank: int,
    recv_from_rank: int,
    pipe_id: int,
    dma_engine: DmaEngine = DmaEngine.dma,
    name: str | None = None,
) -> Iterator[Step]:
    """Send src to the other core's dst and receive its src into dst; calls of one pipe_id complete together.

    Operands: src, dst in SBUF, one shape and dtype, on both cores; ranks 0 and 1. dma_engine gpsimd_dma moves at most
    1024, 512 or 256 bytes per partition of 4-, 2- or 1-byte elements. trn2 on, launched on 2 cores.
    Source: NKI ISA reference, sendrecv.
    """
    require_generation("sendrecv", core, 3)
    for operand, tensor in (("src", src), ("dst", dst)):
        require_tensor("sendrecv", operand, tensor)
        hint = "read it with dma_copy, both cores reach shared HBM" if tensor.buffer in HBM else None
        require_buffer("sendrecv", operand, tensor, SBUF, hint)
    if src.shape != dst.shape or src.dtype != dst.dtype:
        fail("sendrecv-extent", f"sendrecv takes one shape and dtype, src is {src!r} and dst is {dst!r}")
    require_enum("sendrecv", "dma_engine", dma_engine, DmaEngine)
    _require_partners(core, send_to_rank, recv_from_rank, pipe_id)
    by_gpsimd = dma_engine is DmaEngine.gpsimd_dma
    if by_gpsimd and src.free_size * src.itemsize > _GPSIMD_DMA_BYTES[src.itemsize]:
        fail(
            "gpsimd-dma-limit",
            f"sendrecv by gpsimd_dma moves at most {_GPSIMD_DMA_BYTES[src.itemsize]} bytes per partition of "
            f"{src.dtype}, got {src!r}",
            "use dma_engine.dma, or send it in parts",
        )
    price = dma(core.arch, transfer_of(dst, src, "sw" if by_gpsimd else "hw"))
    sent: list[np.ndarray] = []

    def send() -> None:
        sent.append(src.array().copy())

    known = _written(src)
    members = frozenset(core.seat.programs)
    meeting = ("sendrecv", pipe_id, members)
    trigger = "gpsimd" if by_gpsimd else "sync"
    yield Step(trigger, price, reads=partition_runs(src), effect=send, hands_on=True, meeting=meeting)
    message = (src.shape, src.dtype, sent[0] if sent else None, send_to_rank, known)
    what = f"sendrecv of pipe {pipe_id}"
    came = core.seat.meet(("sendrecv", pipe_id), members, message, what, _here())
    shape, dtype, values, receiver, known = came[core.seat.programs[recv_from_rank]]
    if receiver != core.program or shape != dst.shape or dtype != dst.dtype:
        fail(
            "sendrecv-pair",
            f"sendrecv of pipe {pipe_id} expects {dst!r} from core {recv_from_rank}, "
            f"which sends {dtype}{list(shape)} to core {receiver}",
        )

    runs = partition_runs(dst)

    def receive() -> None:
        dst.target()[...] = values
        if known is not None:
            for run, rows in zip(runs, np.split(~known, len(runs)), strict=True):
                forget_elements(run, rows)

    price = PRICES["sendrecv"](core.arch, facts("sync", dst))
    yield Step("sync", price, writes=runs, effect=receive, marks=known is None, meeting=meeting)


def _written(src: NkiTensor) -> np.ndarray | None:
    """Which elements were written, in src's shape; None where all were."""
    runs = partition_runs(src)
    known = [written_elements(run) for run in runs]
    if all(rows is None for rows in known):
        return None
    return np.concatenate(
        [np.ones(run.shape, bool) if rows is None else rows for run, rows in zip(runs, known, strict=True)]
    )


def _require_partners(core: NeuronCore, send_to: int, receive_from: int, pipe_id: int) -> None:
    if core.programs != 2:
        fail("sendrecv-rank", "sendrecv runs between two cores, the kernel runs on one", "launch it as kernel[2]")
    for operand, rank in (("send_to_rank", send_to), ("recv_from_rank", receive_from)):
        if not isinstance(rank, (int, np.integer)) or rank not in (0, 1):
            fail("sendrecv-rank", f"sendrecv takes {operand} 0 or 1, got {rank!r}")
    if not isinstance(pipe_id, (int, np.integer)):
        fail("sendrecv-rank", f"sendrecv takes an integer pipe_id, got {pipe_id!r}")
