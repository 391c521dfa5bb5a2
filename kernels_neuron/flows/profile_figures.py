"""What the pictures of a profile show, in the coordinates they are drawn in: its timeline and its roofline."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernels_neuron.cost.bound import bandwidth_gbps, peak_tflops
from kernels_neuron.cost.free import kind_of
from kernels_neuron.cost.meetings import program_names
from kernels_neuron.cost.path import unit_of
from kernels_neuron.dtypes import ROWS

from .roofline import Point, Roofline

if TYPE_CHECKING:
    from kernels_neuron.cost.profile import Profile
    from kernels_neuron.cost.timeline import Timeline
    from kernels_neuron.sim.trace import Record, Region, Trace

COLOURS = 8  # the kinds that take most time have their own, the rest share the last
TABLE_LOAD = "activation table load"
# spans and gaps shorter than this part of the body are drawn as one
FINEST = 1 / 6000
LINES_ON_ROOFLINE = 10
KERNEL = "K"  # the mark of the whole kernel there


@dataclass
class Span:
    """Work on a track, in us: one instruction or several short ones of one colour."""

    start: float
    end: float
    colour: int
    name: str
    where: str
    count: int = 1

    @property
    def text(self) -> str:
        """What a reader sees who points at it."""
        many = f"{self.count} times " if self.count > 1 else ""
        return f"{many}{self.name}, {self.where}, {self.start:.2f} to {self.end:.2f} us"


@dataclass(frozen=True)
class Track:
    """One engine, or the transfers that one queue triggers, of one core."""

    name: str
    spans: list[Span]


@dataclass(frozen=True)
class Lanes:
    """A timeline: its tracks, the kinds by colour, and how long it is."""

    tracks: list[Track]
    legend: list[tuple[int, str]]
    body_us: float
    merged: bool


def lanes(profile: "Profile") -> Lanes:
    """The tracks of all programs, short spans merged."""
    programs = profile.in_order
    body_us = max((timeline.body_ns for _, timeline in programs), default=0.0) / 1e3
    colours = _colours(programs)
    tracks = []
    count = 0
    for program, (trace, timeline) in zip(program_names([trace for trace, _ in programs]), programs, strict=True):
        by_track: dict[str, list[Span]] = {}
        for track, span in _spans(trace, timeline, colours):
            by_track.setdefault(track, []).append(span)
            count += 1
        of = f"{program} " if len(programs) > 1 else ""
        for name in sorted(by_track, key=_track_order):
            spans = merge(sorted(by_track[name], key=lambda span: span.start), body_us * FINEST)
            tracks.append(Track(of + name, spans))
    named = sorted({(colour, kind) for kind, colour in colours.items() if colour < COLOURS - 1})
    rest = [(COLOURS - 1, "other")] if any(colour == COLOURS - 1 for colour in colours.values()) else []
    drawn = sum(len(track.spans) for track in tracks)
    return Lanes(tracks, named + rest, body_us, merged=drawn < count)


def merge(spans: Iterable[Span], finest: float) -> list[Span]:
    """Spans in order of start, neighbours of one colour as one where both and the gap between are too short to see."""
    merged: list[Span] = []
    for span in spans:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.colour == span.colour
            and span.start - last.end < finest
            and span.end - span.start < finest
            and last.name == span.name
        ):
            last.end, last.count = max(last.end, span.end), last.count + 1
        else:
            merged.append(span)
    return merged


def ticks(body_us: float) -> list[float]:
    """About ten round times from 0 to the end."""
    if body_us <= 0:
        return [0.0]
    step = 10 ** math.floor(math.log10(body_us / 10))
    step *= next(factor for factor in (1, 2, 5, 10) if body_us / (step * factor) <= 11)
    return [index * step for index in range(int(body_us / step) + 1)]


def _colours(programs: "Sequence[tuple[Trace, Timeline]]") -> dict[str, int]:
    """Kind -> colour, by the time each kind takes."""
    spent: dict[str, float] = {}
    for trace, timeline in programs:
        for index, record in enumerate(trace.records):
            spent[kind_of(record)] = spent.get(kind_of(record), 0.0) + timeline.end[index] - timeline.start[index]
        for start, end in timeline.tables.values():
            spent[TABLE_LOAD] = spent.get(TABLE_LOAD, 0.0) + end - start
    order = sorted(spent, key=lambda kind: -spent[kind])
    return {kind: min(place, COLOURS - 1) for place, kind in enumerate(order)}


def _spans(trace: "Trace", timeline: "Timeline", colours: dict[str, int]) -> Iterator[tuple[str, Span]]:
    for index, record in enumerate(trace.records):
        kind, where = kind_of(record), trace.where(record.where)
        triggers = record.price.transfer is not None
        name = f"trigger of {kind}" if triggers else kind
        yield record.engine, _span(timeline.start[index], timeline.end[index], colours[kind], name, where)
        if index in timeline.tables:
            yield "scalar", _span(*timeline.tables[index], colours[TABLE_LOAD], TABLE_LOAD, where)
        if index in timeline.data:
            yield f"{record.engine} dma", _span(*timeline.data[index], colours[kind], kind, where)


def _span(start_ns: float, end_ns: float, colour: int, name: str, where: str) -> Span:
    return Span(start_ns / 1e3, max(start_ns, end_ns) / 1e3, colour, name, where)


def _track_order(name: str) -> tuple[bool, int]:
    engine = name.removesuffix(" dma")
    return name != engine, ("tensor", "vector", "scalar", "gpsimd", "sync").index(engine)


# ---- roofline


def roofline(profile: "Profile") -> Roofline:
    """The whole kernel per byte of HBM, over its body; each line per byte of its operands, while its engine is busy.

    Operations of the kernel are those of all engines. One is a multiply or an add of TensorE, and an element of the
    larger side of any other instruction.
    """
    arch, cores = profile.arch, profile.lnc * profile.ranks
    lines = sorted(_line_work(profile).items(), key=lambda item: -item[1].busy_ns)
    shown = [(key, work) for key, work in lines if work.ops and work.nbytes and work.busy_ns][:LINES_ON_ROOFLINE]
    points = [
        Point(
            f"{engine} {kind} at {where}",
            f"{work.busy_ns / 1e3:.2f} us busy",
            work.ops / work.nbytes,
            work.gops,
            mark=str(number),
        )
        for number, ((engine, kind, where), work) in enumerate(shown, start=1)
    ]
    ops = sum(work.ops for _, work in lines)
    if ops and profile.hbm_bytes and profile.body_us:
        rate = ops / (profile.body_us * 1e3)
        whole = Point(profile.kernel, "the whole kernel", ops / profile.hbm_bytes, rate, mark=KERNEL, colour=1)
        points.insert(0, whole)
    elementwise = [(name, arch.partitions * arch.engine(name).ghz * cores) for name in ("vector", "scalar", "gpsimd")]
    roofs = [(f"TensorE, {profile.dtype}", peak_tflops(arch, profile.dtype, cores) * 1e3)] if profile.flops else []
    roofs += [(f"{name}, an element a lane and cycle", peak) for name, peak in _distinct(elementwise)]
    return Roofline(points, roofs, bandwidth_gbps(arch, profile.lnc) * profile.ranks)


def _distinct(roofs: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Engines of one peak as one roof."""
    names = {"vector": "VectorE", "scalar": "ScalarE", "gpsimd": "GpSimdE"}
    by_peak: dict[float, list[str]] = {}
    for name, peak in roofs:
        by_peak.setdefault(peak, []).append(names[name])
    return [(" and ".join(same), peak) for peak, same in by_peak.items()]


@dataclass
class _Work:
    ops: float = 0.0
    nbytes: float = 0.0
    busy_ns: float = 0.0
    until: float = 0.0

    @property
    def gops(self) -> float:
        return self.ops / self.busy_ns


def _line_work(profile: "Profile") -> dict[tuple[str, str, str], _Work]:
    """(engine, kind, line) -> what the cores do there, each as much as the slowest, and how long that one is busy."""
    trace, timeline = profile.programs[0]
    found: dict[tuple[str, str, str], _Work] = {}
    for index, record in enumerate(trace.records):
        if record.price.transfer is not None:
            continue
        work = found.setdefault((unit_of(record), kind_of(record), trace.where(record.where)), _Work())
        work.ops += _operations(trace, record) * len(profile.programs)
        work.nbytes += sum(map(_nbytes, (*record.reads, *record.writes))) * len(profile.programs)
        start, end = timeline.start[index], timeline.end[index]
        work.busy_ns += max(0.0, end - max(start, work.until))
        work.until = max(work.until, end)
    return found


def _operations(trace: "Trace", record: "Record") -> float:
    if record.engine == "tensor":  # a load of weights does nothing by itself
        return 2.0 * record.macs
    sizes = [_nbytes(region) / _itemsize(trace, region) for region in (*record.reads, *record.writes)]
    return max(sizes, default=0.0)


def _nbytes(region: "Region") -> int:
    return (region.p1 - region.p0) * region.partition_bytes


def _itemsize(trace: "Trace", region: "Region") -> int:
    return ROWS[trace.tiles[region.tile].dtype].itemsize
