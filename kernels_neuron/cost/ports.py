"""Memory ports that two engines of a core share: who holds one while it streams, and the next gap in its use."""

from bisect import bisect_right

from kernels_neuron.arch import Arch
from kernels_neuron.sim.trace import Record, Trace

_SBUF = 0
_PSUM = 1  # and one more per bank, where a chip excludes bank by bank


def ports_of(trace: Trace, arch: Arch) -> dict[int, tuple[int, ...]]:
    """Record -> the ports it holds, for those ports that more than one engine uses.

    VectorE and GpSimdE share a port to SBUF, VectorE and ScalarE one to PSUM; which instructions hold them differs by
    chip: Arch.sbuf_port and Arch.psum_port.
    """
    compute = {record.engine for record in trace.records if record.price.transfer is None}
    if "vector" not in compute or not compute & {"scalar", "gpsimd"}:
        return {}
    held = {index: found for index, record in enumerate(trace.records) if (found := _held(record, trace, arch))}
    users: dict[int, set[str]] = {}
    for index, found in held.items():
        for port in found:
            users.setdefault(port, set()).add(trace.records[index].engine)
    shared = {port for port, engines in users.items() if len(engines) > 1}
    kept = ((index, tuple(port for port in found if port in shared)) for index, found in held.items())
    return {index: found for index, found in kept if found}


def _held(record: Record, trace: Trace, arch: Arch) -> tuple[int, ...]:
    if record.price.transfer is not None or record.price.front or record.engine not in ("vector", "scalar", "gpsimd"):
        return ()
    ports: set[int] = set()
    for region in (*record.reads, *record.writes):
        tile = trace.tiles[region.tile]
        if tile.buffer == "sbuf" and record.engine != "scalar":
            # in a chip where only the performance modes take the shared port, GpSimdE always does
            if arch.sbuf_port == "always" or record.engine == "gpsimd" or record.price.fast:
                ports.add(_SBUF)
        elif tile.buffer == "psum" and record.engine != "gpsimd":
            if arch.psum_port == "always":
                ports.add(_PSUM)
            else:
                start = trace.places[region.tile].byte + region.lo
                ports.update(
                    range(
                        _PSUM + start // arch.psum_bank_bytes,
                        _PSUM + 1 + (start + region.hi - region.lo - 1) // arch.psum_bank_bytes,
                    )
                )
    return tuple(sorted(ports))


class Port:
    """The times at which a port is held, none overlapping another."""

    __slots__ = ("ends", "holders", "starts")

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.ends: list[float] = []
        self.holders: list[int] = []

    def gap(self, start: float, length: float) -> tuple[float, int]:
        """The earliest time from `start` on at which the port is free for `length`, and its holder till then, or -1."""
        at = bisect_right(self.ends, start)
        holder = -1
        while at < len(self.starts) and self.starts[at] < start + length:
            start, holder = self.ends[at], self.holders[at]
            at += 1
        return start, holder

    def hold(self, start: float, length: float, record: int) -> None:
        """Take the port for `length` from `start`, which `gap` gave."""
        at = bisect_right(self.starts, start)
        self.starts.insert(at, start)
        self.ends.insert(at, start + length)
        self.holders.insert(at, record)


def reserve(ports: list[Port], start: float, length: float, record: int) -> tuple[float, int]:
    """Hold all of `ports` for `length` from the earliest time, not before `start`, at which they are free.

    Gives that time, and the record that held a port until then; -1 where none had to be waited for.
    """
    held_by, moved = -1, True
    while moved:
        before = start
        for port in ports:
            start, holder = port.gap(start, length)
            held_by = holder if holder >= 0 else held_by
        moved = start > before
    for port in ports:
        port.hold(start, length, record)
    return start, held_by
