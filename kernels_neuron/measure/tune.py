"""tune: prices the tile parameters a kernel declares, without computing, and keeps those that win and are right.

A candidate is tried by putting it where it would ship, as the only row of the kernel's table: what is priced and
verified is what a user runs.
"""

import importlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kernels_neuron.artifact import import_variant
from kernels_neuron.errors import KernelError, KernelsNeuronError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using
from kernels_neuron.spec import Spec
from kernels_neuron.tiles import TUNED, Row, Tiles

from .cases import Task
from .executors import run_all
from .journal import Journal, Price
from .verify import KERNEL_RAISES, SWITCHES, cores, explain, run_case

# a winner has to be faster than what is there by more than this share
LEAST_GAIN = 0.005
# candidates of one task that one future prices: they share the inputs
CHUNK = 8
# candidates that are verified, best first, before a task is left as it is
TRIES = 3
# pools that are started again after a worker of theirs died
RESTARTS = 2
# the table of tiles is one for a process: threads of a worker take turns
_TABLE = threading.Lock()


@dataclass(frozen=True)
class Chunk:
    """Candidates of one task, priced together."""

    task: Task
    candidates: tuple[Tiles | None, ...]


@dataclass(frozen=True)
class Contest:
    """The candidates of one task that are faster than what is there, best first, and the classes of calls to serve.

    at       the sizes of the task
    own      estimated body of the table as it ships
    classes  ranges of sizes to write a row for, the widest first, each with cases that bound it
    """

    task: Task
    at: dict[str, int]
    own: float
    faster: tuple[Price, ...]
    classes: tuple[tuple[dict[str, tuple[int, int]], tuple[Task, ...]], ...]


@dataclass(frozen=True)
class TuneRow:
    """The outcome for one task. Times are estimated bodies in microseconds.

    priced   candidates, illegal ones included; illegal counts them by the rule they break
    verdict  faster: a row is to be written; kept: nothing is faster; missed: what is faster misses the reference
    at       the sizes of the workload; sizes: the ranges that tiles are for
    error    of the winner, as a share of what is allowed
    """

    kernel: str
    workload: str
    dtype: str
    arch: str
    lnc: int
    priced: int
    illegal: dict[str, int]
    before_us: float
    after_us: float
    verdict: str
    at: dict[str, int]
    tiles: Tiles | None = None
    sizes: dict[str, tuple[int, int]] | None = None
    error: float | None = None
    problem: str | None = None

    @property
    def row(self) -> Row | None:
        """What to write into tuned.py, or None."""
        if self.tiles is None or self.sizes is None:
            return None
        return Row(self.arch, self.lnc, self.dtype, self.sizes, self.tiles)

    def to_json(self) -> dict[str, Any]:
        """The row as `tune --json` prints it."""
        return dict(vars(self))


def tune(
    tasks: Sequence[Task],
    spec: Spec,
    journal: Journal,
    *,
    budget: int,
    workers: int | None = None,
    executor: Executor | None = None,
    on_priced: Callable[[int, int], None] | None = None,
) -> list[TuneRow]:
    """Search the tiles of one kernel for each task; a row per task, the same whatever ran where.

    budget     candidates to price for a task; of more, as many are drawn at random, always the same ones
    workers, executor   as in executors.run_all; processes that die are replaced, what they did is done again
    on_priced  called with how many candidates have a price, and of how many
    """
    if spec.tune is None:
        raise KernelsNeuronError(
            f"{spec.kernel} declares no tile parameters", hint="add [tune] to spec.toml, such as tile_n = [256, 512]"
        )
    letters = {workload.name: workload.sizes for workload in spec.workloads}
    wanted = {str(task): drawn(spec, letters[task.case.workload], budget) for task in tasks}
    total = sum(len(candidates) for candidates in wanted.values())

    own: dict[str, Price] = {}
    left = sum(len(chunk.candidates) for chunk in _chunks(tasks, wanted, journal, own)) - len(tasks)

    def note(prices: list[Price]) -> None:
        nonlocal left
        candidates = [price for price in prices if price.tiles is not None]
        journal.add(candidates)
        own.update({price.task: price for price in prices if price.tiles is None})
        left -= len(candidates)
        if on_priced is not None:
            on_priced(total - left, total)

    run = _Runner(workers, executor)
    run(price, lambda: _chunks(tasks, wanted, journal, own), note)
    contests = [_contest(task, tasks, spec, own[str(task)], wanted[str(task)], journal) for task in tasks]
    outcomes: dict[str, TuneRow] = {}
    run(
        settle,
        lambda: [contest for contest in contests if str(contest.task) not in outcomes],
        lambda row: outcomes.update({_name(row): row}),
    )
    rows = [
        replace(outcomes[str(task)], priced=len(wanted[str(task)]), illegal=_illegal(task, wanted[str(task)], journal))
        for task in tasks
    ]
    return _apart(rows)


def _apart(rows: Sequence[TuneRow]) -> list[TuneRow]:
    """The rows, of which no two give one class other tiles: the first has the class, a later one its own sizes."""
    taken: dict[Any, Tiles] = {}
    found = []
    for row in rows:
        if row.row is not None and taken.setdefault(row.row.key, row.row.tiles) != row.tiles:
            row = replace(row, sizes={name: (size, size) for name, size in row.at.items()})
        found.append(row)
    return found


def drawn(spec: Spec, letters: Mapping[str, int], budget: int) -> list[Tiles]:
    """The candidates of a workload, no more than `budget`, in the order of the file."""
    assert spec.tune is not None
    candidates = spec.tune.candidates(letters)
    if len(candidates) <= budget:
        return candidates
    chosen = random.Random(spec.kernel).sample(range(len(candidates)), budget)
    return [candidates[i] for i in sorted(chosen)]


def _name(row: TuneRow) -> str:
    return f"{row.kernel}/{row.workload}/{row.dtype}/{row.arch}/lnc{row.lnc}"


def _chunks(
    tasks: Sequence[Task], wanted: Mapping[str, list[Tiles]], journal: Journal, own: Mapping[str, Price]
) -> list[Chunk]:
    """What has no price yet."""
    found = []
    for task in tasks:
        name = str(task)
        missing: list[Tiles | None] = [tiles for tiles in wanted[name] if Price(name, tiles).key not in journal.prices]
        missing = missing if name in own else [None, *missing]
        found += [Chunk(task, tuple(missing[i : i + CHUNK])) for i in range(0, len(missing), CHUNK)]
    return found


def _illegal(task: Task, candidates: Sequence[Tiles], journal: Journal) -> dict[str, int]:
    reasons = [journal.prices[Price(str(task), tiles).key].illegal for tiles in candidates]
    return dict(sorted(Counter(reason for reason in reasons if reason is not None).items()))


@dataclass(frozen=True)
class _Runner:
    """run_all that goes on with a fresh pool after a worker of its own pool died."""

    workers: int | None
    executor: Executor | None

    def __call__(
        self, function: Callable[[Any], Any], missing: Callable[[], Sequence[Any]], on_row: Callable[[Any], None]
    ) -> None:
        """`function` of each task that is `missing`; `on_row` takes an outcome, and its task is missing no more."""
        for attempt in range(1 + RESTARTS):
            try:
                run_all(function, missing(), workers=self.workers, executor=self.executor, on_row=on_row)
                return
            except BrokenExecutor as error:
                if self.executor is not None or attempt == RESTARTS:
                    hint = "run the same command again: it goes on where it was"
                    raise KernelsNeuronError(f"workers died {attempt + 1} times: {error}", hint=hint) from error


# ---- in a worker


def price(chunk: Chunk) -> list[Price]:
    """Price candidates by running the op without computing."""
    task = chunk.task
    inputs = task.case.with_parameters(task.case.make_inputs())
    return [_price(task, inputs, tiles) for tiles in chunk.candidates]


def _price(task: Task, inputs: dict[str, Any], tiles: Tiles | None) -> Price:
    from kernels_neuron.cost.profile import profile_run

    settings = Settings(lnc=task.lnc, execute=False, switches=SWITCHES)
    try:
        with _TABLE, trying(task, tiles) as module, cores(task.lnc), using(task.arch, settings) as runs:
            task.case.call(getattr(module, task.case.entry), inputs)
    except KernelError as error:
        return Price(str(task), tiles, illegal=error.rule)
    except KERNEL_RAISES as error:
        return Price(str(task), tiles, illegal=f"{type(error).__name__}: {error}")
    return Price(str(task), tiles, body_us=sum(profile_run(run).body_us for run in runs))


@contextmanager
def trying(task: Task, tiles: Tiles | None) -> Iterator[Any]:
    """The kernel's module with a table of one row that covers every call; None: with the table that ships."""
    module = import_variant(task.variant)
    table = importlib.import_module(f"{module.__name__}.{task.case.kernel}.{TUNED.removesuffix('.py')}").TUNED
    before = list(table)
    if tiles is not None:
        table[:] = [(task.arch, task.lnc, task.case.dtype, {}, tiles)]
    try:
        yield module
    finally:
        table[:] = before


def settle(contest: Contest) -> TuneRow:
    """Verify the best candidates of a task until one equals the reference, and find the class of calls it serves."""
    task = contest.task
    case = task.case
    name = case.kernel, case.workload, case.dtype, task.arch, task.lnc
    row = TuneRow(*name, 0, {}, contest.own, contest.own, "kept", contest.at)
    for candidate in contest.faster[:TRIES]:
        assert candidate.tiles is not None and candidate.body_us is not None
        with _TABLE, trying(task, candidate.tiles):
            outcome = run_case(task, as_in_a_model=True)
        if not outcome.ok:
            row = replace(row, verdict="missed", problem=f"{candidate.tiles}: {explain(outcome)}")
            continue
        sizes = next(ranges for ranges, bounds in contest.classes if _serves(candidate.tiles, bounds))
        error = outcome.comparison.error if outcome.comparison else None
        return replace(
            row, verdict="faster", after_us=candidate.body_us, tiles=candidate.tiles, sizes=sizes, error=error
        )
    return row


def _serves(tiles: Tiles, bounds: Sequence[Task]) -> bool:
    """Whether tiles are legal, and no slower than the table that ships, on every task."""
    for task in bounds:
        own, tried = price(Chunk(task, (None, tiles)))
        if tried.body_us is None or own.body_us is None or tried.body_us > own.body_us:
            return False
    return True


# ---- who wins, and for which calls

Ranges = dict[str, tuple[int, int]]


def _contest(
    task: Task, tasks: Sequence[Task], spec: Spec, own: Price, candidates: Sequence[Tiles], journal: Journal
) -> Contest:
    if own.body_us is None:
        raise KernelsNeuronError(f"{task} does not run with the tiles it ships with: {own.illegal}")
    assert spec.tune is not None
    prices = [journal.prices[Price(str(task), tiles).key] for tiles in candidates]
    least = own.body_us * (1 - LEAST_GAIN)
    faster = [each for each in prices if each.body_us is not None and each.body_us < least]
    # equal times: the first in the order of the file, whatever finished first
    faster.sort(key=lambda each: each.body_us or 0.0)
    at = spec.tune.sizes_of(task.case.sizes)
    wide, bounds = around(task, spec)
    alike = (task.arch, task.lnc, task.case.dtype)
    others = [other for other in tasks if other != task and (other.arch, other.lnc, other.case.dtype) == alike]
    inside = [other for other in others if _is_within(spec.tune.sizes_of(other.case.sizes), wide)]
    exact = {name: (size, size) for name, size in at.items()}
    return Contest(task, at, own.body_us, tuple(faster), ((wide, (*bounds, *inside)), (exact, ())))


def around(task: Task, spec: Spec) -> tuple[Ranges, tuple[Task, ...]]:
    """The class of a task, sizes between the same powers of two, and two tasks that bound it.

    They have every size at its power of two, and at one less, where no tile is whole; limits of the spec hold.
    """
    assert spec.tune is not None
    workload = next(each for each in spec.workloads if each.name == task.case.workload)
    bounds = []
    for less in (0, 1):
        letters = {
            letter: min(max(size, above(size) - less), spec.limits.get(letter, (0, above(size)))[1])
            for letter, size in workload.sizes.items()
        }
        case = spec.case(replace(workload, sizes=letters), task.case.dtype)
        bounds.append(replace(task, case=replace(case, workload=f"{case.workload}_bound_{less}")))
    reached = spec.tune.sizes_of(bounds[0].case.sizes)
    sizes = spec.tune.sizes_of(workload.sizes)
    wide = {name: (above(size) // 2 + 1, min(above(size), reached[name])) for name, size in sizes.items()}
    return wide, tuple(bounds)


def _is_within(sizes: Mapping[str, int], ranges: Ranges) -> bool:
    return all(least <= sizes[name] <= most for name, (least, most) in ranges.items())


def above(size: int) -> int:
    """The least power of two that is not below `size`."""
    return 1 << (size - 1).bit_length() if size > 0 else size
