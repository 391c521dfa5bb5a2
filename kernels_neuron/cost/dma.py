"""The 16 DMA engines as servers: descriptors of at most 4 KiB, first in first out in a ring, rings taking turns.

Engines that get the same share of every transfer run in step, so one lane stands for all of them. A lane's rings share
its time evenly, which is what taking turns packet by packet amounts to. A packet that stalls holds its engine.
So a delay can end a launch earlier: another ring has the engines to itself for a while, and a load that now finds its
ring busy does not pay for waking it.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np

from kernels_neuron.arch import Arch
from kernels_neuron.sim.trace import Transfer

Shares = tuple[tuple[int, float, float], ...]


@dataclass(frozen=True)
class Lanes:
    """How the transfers of a trace fall on the DMA engines.

    engines   per lane, the engines it stands for
    shares    transfer -> ((lane, ns of service, bytes), ...), lanes without a share left out
    """

    engines: tuple[tuple[int, ...], ...]
    shares: dict[Transfer, Shares]


def lanes(transfers: Iterable[Transfer], arch: Arch) -> Lanes:
    """Group the engines into lanes by their service times."""
    kinds = list(dict.fromkeys(transfers))
    if not kinds:
        return Lanes((), {})
    loads = np.stack([_engine_loads(kind, arch) for kind in kinds])  # [kinds, 2, engines]
    groups: dict[bytes, list[int]] = {}
    for engine in range(arch.dma_engines):
        groups.setdefault(loads[:, :, engine].tobytes(), []).append(engine)
    members = tuple(tuple(group) for group in groups.values())
    shares = {}
    for kind, (ns, size) in zip(kinds, loads, strict=True):
        parts = [(lane, float(ns[group[0]]), float(size[group[0]])) for lane, group in enumerate(members)]
        shares[kind] = tuple(part for part in parts if part[1] > 0)
    return Lanes(members, shares)


def _engine_loads(transfer: Transfer, arch: Arch) -> np.ndarray:
    """(ns, bytes) per engine. Partition p belongs to engine p / 8; without an SBUF side all get the same. [dma]"""
    engines = arch.dma_engines
    per_engine = arch.partitions // engines
    if transfer.direction == "copy" and (transfer.p0, transfer.partitions) == (0, arch.partitions):
        rows = np.full(engines, transfer.descriptors / engines)
        rows[rows > 0] = np.maximum(rows[rows > 0], 1e-9)
    else:
        low = np.arange(engines) * per_engine
        high = np.minimum(low + per_engine, transfer.p0 + transfer.partitions)
        count = np.clip(high - np.maximum(low, transfer.p0), 0, None)
        rows = count * (transfer.descriptors / max(1, transfer.partitions))
    size = rows * transfer.descriptor_bytes
    return np.stack([service_ns(rows, size, transfer, arch), size])


def service_ns(rows: np.ndarray, size: np.ndarray, transfer: Transfer, arch: Arch) -> np.ndarray:
    """Time an engine needs for `rows` descriptors of together `size` bytes, each split at 4 KiB. [trace]

    Software DGE packs the rows of a load into packets of up to 4 KiB; its stores still pay per row.
    """
    most = arch.dma_max_descriptor_bytes
    pieces = rows * max(1, -(-transfer.descriptor_bytes // most))
    if transfer.dge == "sw" and transfer.direction == "load":
        pieces = np.minimum(pieces, np.ceil(size / most))
    return (pieces * arch.dma_descriptor_ns + size / arch.dma_engine_bytes_per_ns) / transfer.rate


@dataclass(slots=True)
class Chunk:
    """One transfer's part on one lane, waiting or being served.

    stall  how long its first packets hold the engine once it is taken up
    ready  when its data can flow at the earliest; until then its ring waits and others are served
    """

    record: int
    work: float
    size: float
    stall: float = 0.0
    ready: float = 0.0


class Hbm:
    """The limit of HBM on the sum of the cores that share it, as a bucket that fills at its rate.

    rate  bytes per ns
    """

    __slots__ = ("given", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.given = 0.0  # when what was asked for so far has gone through

    def take(self, now: float, nbytes: float) -> float:
        """When `nbytes` that are asked for at `now` have gone through at the earliest."""
        self.given = max(self.given, now) + nbytes / self.rate
        return self.given


@dataclass(slots=True)
class Lane:
    """The state of one lane: rings with work, and the long-stream limit as a token bucket.

    rings    trigger queue -> chunks in order; the first of each is waiting for its data or being served
    left     ring -> remaining ns of its first chunk, were it alone
    paused   ring -> when the data of its first chunk can flow
    held     until when a stalled packet holds the engine
    hbm      what the cores share, None for a core that has it to itself
    engines  how many engines the lane stands for
    """

    stream: float  # bytes per ns sustained
    ahead: float  # ns a burst may run ahead of the sustained rate
    hbm: Hbm | None = None
    engines: int = 1
    rings: dict[Hashable, deque[Chunk]] = field(default_factory=dict)
    left: dict[Hashable, float] = field(default_factory=dict)
    paused: dict[Hashable, float] = field(default_factory=dict)
    held: float = 0.0
    now: float = 0.0
    busy: float = 0.0
    version: int = 0
    allowed: float = 0.0

    def idle(self, ring: Hashable) -> bool:
        """Whether a ring has nothing under way."""
        return not self.rings.get(ring)

    def join(self, time: float, ring: Hashable, chunk: Chunk) -> None:
        """Put a chunk at the end of its ring."""
        waiting = self.rings.setdefault(ring, deque())
        waiting.append(chunk)
        if len(waiting) == 1:
            self._move(time)
            self._take_up(ring)

    def step(self, time: float) -> list[Chunk]:
        """Move to `time`, take up chunks whose data can flow now and take out those that are done."""
        self._move(time)
        if self.paused:
            for ring in [ring for ring, until in self.paused.items() if until <= time]:
                del self.paused[ring]
                self._serve(ring)
        done = []
        for ring in [ring for ring, left in self.left.items() if left <= _NOTHING]:
            waiting = self.rings[ring]
            done.append(waiting.popleft())
            del self.left[ring]
            if waiting:
                self._take_up(ring)
        return done

    def next_event(self) -> float | None:
        """When a chunk will be done or its data flow, if nothing joins."""
        flows = min(self.paused.values()) if self.paused else None
        if not self.left:
            return flows
        begins = self.held if self.held > self.now else self.now
        done = begins + min(self.left.values()) * len(self.left)
        return done if flows is None or done < flows else flows

    def _move(self, time: float) -> None:
        """Serve until `time`, every ring with work at an even share."""
        left = self.left
        served = time - (self.held if self.held > self.now else self.now)
        if left and served > 0:
            share = served / len(left)
            for ring in left:
                left[ring] -= share
            self.busy += served
        if time > self.now:
            self.now = time

    def _take_up(self, ring: Hashable) -> None:
        ready = self.rings[ring][0].ready
        if ready > self.now:
            self.paused[ring] = ready
        else:
            self._serve(ring)

    def _serve(self, ring: Hashable) -> None:
        chunk, now = self.rings[ring][0], self.now
        if now + chunk.stall > self.held:
            self.held = now + chunk.stall
        self.allowed = (now if now > self.allowed else self.allowed) + chunk.size / self.stream
        behind = self.allowed - self.ahead - now
        if self.hbm is not None:
            behind = max(behind, self.hbm.take(now, chunk.size * self.engines) - now)
        shared = behind / (len(self.left) + 1)
        self.left[ring] = shared if shared > chunk.work else chunk.work


_NOTHING = 1e-6  # ns of work that rounding may leave


def make_lanes(plan: Lanes, arch: Arch, cores: int) -> list[Lane]:
    """Idle lanes for `cores` cores, whose sum the HBM limit binds."""
    stream = arch.dma_stream_gbps / arch.dma_engines
    burst = arch.dma_burst_bytes / arch.dma_engines
    ahead = max(0.0, burst / stream - burst / arch.dma_engine_bytes_per_ns)
    hbm = Hbm(cores * arch.hbm_gbps) if cores > 1 else None
    return [Lane(stream, ahead, hbm, len(engines)) for _ in range(cores) for engines in plan.engines]
