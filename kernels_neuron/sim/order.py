"""NkiInstruction: the handle of an issued instruction, by which a kernel adds waits of its own."""

from __future__ import annotations

from .locate import fail
from .trace import Trace


class NkiInstruction:
    """One issued instruction: where it stands in its trace, and inside which dynamic loops."""

    __slots__ = ("index", "loops", "name", "trace")

    def __init__(self, trace: Trace, index: int, name: str, loops: tuple[int, ...]) -> None:
        self.trace = trace
        self.index = index
        self.name = name
        self.loops = loops

    def __repr__(self) -> str:
        return f"<instruction {self.index} {self.name}>"

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        """Wait for `producers` every time this instruction runs; returns self."""
        for producer in producers:
            if not isinstance(producer, NkiInstruction):
                fail("depends-on", f"depends_on takes what nisa calls returned, got {producer!r}")
            if producer.trace is not self.trace:
                fail("depends-on", f"{self!r} cannot wait for an instruction of another program")
            if self.loops[: len(producer.loops)] != producer.loops:
                fail(
                    "depends-on",
                    f"{self!r} waits for {producer!r} of a dynamic loop that it is not part of",
                    "put both into one loop, or the producer before it",
                )
            self.trace.edges.append((producer.index, self.index))
        return self
