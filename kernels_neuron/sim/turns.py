"""Programs that run side by side: a thread each, one running at a time, so that every run is the same run.

The turn passes only where a program waits for another one (a barrier, a send and receive, a collective) and where it
ends. When nobody can go on, that is an error that names the line at which each one waits.
"""

import contextvars
import threading
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from kernels_neuron.errors import KernelError


class _Abandoned(BaseException):
    """Unwinds a program whose run has failed elsewhere; no `except Exception` of a kernel catches it."""


@dataclass
class _Meeting:
    """A point where `members` exchange contributions; those who came wait for the others."""

    members: frozenset[int]
    came: dict[int, Any] = field(default_factory=dict)


@dataclass
class _Player:
    """One program: what it is called, its baton (held while it must not run), where it waits."""

    name: str
    baton: threading.Semaphore
    waits_for: str = ""
    finished: bool = False


class Turns:
    """A table of programs that meet each other."""

    def __init__(self, names: Sequence[str]) -> None:
        self._players = [_Player(name, threading.Semaphore(0)) for name in names]
        self._meetings: dict[tuple[Hashable, frozenset[int]], _Meeting] = {}
        self._abandoned = False
        self._failed: int | None = None
        self._deadlocked: KernelError | None = None

    def run(self, bodies: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results of `bodies`, one per program, or the first failure."""
        with ThreadPoolExecutor(len(bodies), "kernels-neuron-program") as pool:
            plays = [
                pool.submit(contextvars.copy_context().run, self._play, index, body)
                for index, body in enumerate(bodies)
            ]
            self._players[0].baton.release()
            try:
                wait(plays)
            finally:  # an interrupt of this thread must not leave the programs waiting
                self._abandon()
        if self._deadlocked is not None:
            raise self._deadlocked
        if self._failed is not None:
            plays[self._failed].result()
        return [play.result() for play in plays]

    def _play(self, index: int, body: Callable[[], Any]) -> Any:
        player = self._players[index]
        player.baton.acquire()
        if self._abandoned:
            raise _Abandoned
        try:
            result = body()
            player.finished = True
        finally:
            if not player.finished and not self._abandoned:
                self._failed = index
                self._abandon()
        if not self._abandoned:
            self._pass_turn(index)
        return result

    def meet(
        self, index: int, key: Hashable, members: frozenset[int], contribution: Any, what: str, where: str
    ) -> dict[int, Any]:
        """Wait until every member has come to `key` and return all contributions by member.

        what, where  are named in the error when that never happens
        """
        meeting = self._meetings.setdefault((key, members), _Meeting(members))
        meeting.came[index] = contribution
        if len(meeting.came) == len(members):
            del self._meetings[key, members]
            for other in members:
                self._players[other].waits_for = ""
            return meeting.came
        player = self._players[index]
        player.waits_for = f"{what} at {where}"
        self._pass_turn(index)
        player.baton.acquire()
        if self._abandoned:
            raise _Abandoned
        return meeting.came

    def _pass_turn(self, index: int) -> None:
        count = len(self._players)
        for step in range(1, count + 1):
            player = self._players[(index + step) % count]
            if not player.finished and not player.waits_for:
                player.baton.release()
                return
        if all(player.finished for player in self._players):
            return
        self._deadlocked = self._deadlock()
        self._abandon()

    def _deadlock(self) -> KernelError:
        states = [
            f"{player.name} {'has ended' if player.finished else f'waits in {player.waits_for}'}"
            for player in self._players
        ]
        return KernelError(
            f"the programs wait for each other: {', '.join(states)}",
            rule="deadlock",
            hint="let every program reach the same barriers, transfers and collectives in the same order",
        )

    def _abandon(self) -> None:
        self._abandoned = True
        for player in self._players:
            if not player.finished:
                player.baton.release()


@dataclass(frozen=True)
class Seat:
    """One program's place at the table: who it is, which rank it belongs to, and who its partners are.

    programs  indices of the programs of this rank, by program id
    ranks     indices of the programs of every rank
    """

    turns: Turns | None
    index: int = 0
    rank: int = 0
    programs: tuple[int, ...] = (0,)
    ranks: tuple[tuple[int, ...], ...] = ((0,),)

    def meet(self, key: Hashable, members: frozenset[int], contribution: Any, what: str, where: str) -> dict[int, Any]:
        """As Turns.meet; a program that sits alone meets itself."""
        if self.turns is None or members == {self.index}:
            return {self.index: contribution}
        return self.turns.meet(self.index, key, members, contribution, what, where)


ALONE = Seat(None)
