"""Where tasks run: in this process, or in a pool of processes with one BLAS and one torch thread each."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from typing import TypeVar

from kernels_neuron.errors import UsageError

Task = TypeVar("Task")
Row = TypeVar("Row")

# read by the thread pools of BLAS and OpenMP when they start, so they have to stand before a worker imports numpy
_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
CONNECT_S = 10
ONE_THREAD = dict.fromkeys(_POOLS, "1")


def default_workers() -> int:
    """As many as this process may use cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_torch_thread() -> None:
    """Keep torch to one thread, so that sums do not depend on the machine."""
    import torch

    torch.set_num_threads(1)


@contextmanager
def process_pool(workers: int, environment: Mapping[str, str] | None = None) -> Iterator[Executor]:
    """A pool of fresh processes; the tasks that have not begun are dropped when the block ends by an error.

    environment  variables that the processes have besides this one's
    """
    if workers < 1:
        raise UsageError(f"workers has to be at least 1, got {workers}")
    added = {**ONE_THREAD, **(environment or {})}
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=one_torch_thread)
    finished = False
    try:
        yield pool
        finished = True
    finally:
        pool.shutdown(wait=finished, cancel_futures=True)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@contextmanager
def dask_executor(address: str) -> Iterator[Executor]:
    """The executor of a Dask cluster whose scheduler is at `address`, such as tcp://10.0.0.7:8786.

    Its workers need this package, and built kernels at the same path: a shared file system.
    """
    try:
        from distributed import Client
    except ImportError:
        raise UsageError("a Dask scheduler needs distributed", hint="pip install 'kernels-neuron[tune]'") from None
    try:
        client = Client(address, timeout=CONNECT_S)
    except (OSError, ValueError) as error:
        raise UsageError(f"no Dask scheduler answers at {address}: {error}") from None
    with client:
        yield client.get_executor()


def run_all(
    function: Callable[[Task], Row],
    tasks: Sequence[Task],
    *,
    workers: int | None = None,
    executor: Executor | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> list[Row]:
    """`function` of each task, in the order of the tasks.

    workers   processes; 1 runs everything in this one; None: one per core, no more than tasks
    executor  any concurrent.futures executor instead
    on_row    called with each row as soon as it is there
    """
    if executor is not None:
        return _submit(function, tasks, executor, on_row)
    workers = min(default_workers() if workers is None else workers, max(1, len(tasks)))
    if workers == 1:
        return list(_here(function, tasks, on_row))
    with process_pool(workers) as pool:
        return _submit(function, tasks, pool, on_row)


def _here(
    function: Callable[[Task], Row], tasks: Iterable[Task], on_row: Callable[[Row], None] | None
) -> Iterator[Row]:
    for task in tasks:
        row = function(task)
        if on_row is not None:
            on_row(row)
        yield row


def _submit(
    function: Callable[[Task], Row], tasks: Sequence[Task], executor: Executor, on_row: Callable[[Row], None] | None
) -> list[Row]:
    futures = [executor.submit(function, task) for task in tasks]
    for future in as_completed(futures):
        row = future.result()
        if on_row is not None:
            on_row(row)
    return [future.result() for future in futures]
