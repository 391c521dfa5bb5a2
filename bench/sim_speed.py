"""How fast the simulator runs, beside the array calls that it makes; exits 1 where a target is missed.

    .venv/bin/python bench/sim_speed.py [--json] [--row NAME ...] [--repeat N]

Every ratio and difference is taken between two sides of one run that take turns, with the same threads, which the
environment decides (OPENBLAS_NUM_THREADS, OMP_NUM_THREADS). A row holds medians, least and greatest, and the processor
time beside the wall time: on a busy machine the least is nearest to what an idle one shows.
"""

import argparse
import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np

import kernels_neuron
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using

import nki  # isort: skip
import nki.isa as nisa  # isort: skip
import nki.language as nl  # isort: skip

COUNT = 2000  # instructions of the rows that time one kind of instruction
BF16 = ml_dtypes.bfloat16
ENVIRONMENT = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONDONTWRITEBYTECODE")


@dataclass
class Row:
    """One measured value with its target: both in `unit`, each list one entry a repetition."""

    name: str
    unit: str
    limit: float
    values: list[float]
    processor: list[float]  # the same value in processor time instead of wall time
    detail: str

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def ok(self) -> bool:
        return self.median <= self.limit


Clock = tuple[float, float]  # wall and processor seconds


def timed(call: Callable[[], object]) -> Clock:
    """Seconds that one call takes, with the garbage of what ran before collected."""
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - processor


def by_turns(first: Callable[[], object], second: Callable[[], object], repeat: int) -> list[tuple[Clock, Clock]]:
    """Times of both sides, one after the other, after a warm-up of each."""
    first()
    second()
    return [(timed(first), timed(second)) for _ in range(repeat)]


# ---- overhead of one instruction


@nki.jit
def many_tensor_tensor(a, b, count):
    """`count` additions of two [128, n] tiles that were loaded once."""
    y = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    left, right, sums = (nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf) for _ in range(3))
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    for _ in range(count):
        nisa.tensor_tensor(dst=sums, data1=left, data2=right, op=nl.add)
    nisa.dma_copy(dst=y, src=sums)
    return y


@nki.jit
def many_matmul(a, b, count):
    """`count` products of a [128, 128] and a [128, 512] tile, by turns into two PSUM tiles, so that each is made."""
    y = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    left = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    banks = [nl.ndarray(y.shape, dtype=nl.float32, buffer=nl.psum) for _ in range(2)]
    for turn in range(count):
        nisa.nc_matmul(dst=banks[turn % 2], stationary=left, moving=right, accumulate=False)
    result = nl.ndarray(y.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=banks[0])
    nisa.dma_copy(dst=y, src=result)
    return y


def overhead_rows(repeat: int) -> Iterator[Row]:
    """Wall time of a run of COUNT instructions less that of its array calls, per instruction."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((128, 512)).astype(BF16) for _ in range(2))
    sums = np.empty_like(left)

    def add() -> None:
        for _ in range(COUNT):
            wide = left.astype(np.float32)
            np.add(wide, right.astype(np.float32), out=wide)
            sums[...] = wide

    yield _overhead("tensor_tensor bfloat16 128x512", lambda: many_tensor_tensor(left, right, COUNT), add, repeat)

    for dtype in (BF16, np.float32):
        weights, moving = rng.standard_normal((128, 128)).astype(dtype), rng.standard_normal((128, 512)).astype(dtype)
        yield _overhead(
            f"nc_matmul {np.dtype(dtype)} 128x128x512",
            partial(many_matmul, weights, moving, COUNT),
            partial(_products, weights, moving),
            repeat,
        )


def _products(weights: np.ndarray, moving: np.ndarray) -> None:
    bank = np.empty((weights.shape[1], moving.shape[1]), np.float32)
    for _ in range(COUNT):
        bank[...] = weights.astype(np.float32, copy=False).T @ moving.astype(np.float32, copy=False)


def _overhead(name: str, run: Callable[[], object], bare: Callable[[], object], repeat: int) -> Row:
    pairs = by_turns(run, bare, repeat)
    wall, processor = ([(ours[i] - theirs[i]) / COUNT * 1e6 for ours, theirs in pairs] for i in (0, 1))
    array_us = statistics.median(theirs[0] for _, theirs in pairs) / COUNT * 1e6
    return Row(f"overhead of {name}", "us", 25.0, wall, processor, f"its array calls take {array_us:.1f} us")


# ---- a tiled matmul


@nki.jit
def tiled_matmul(lhsT, rhs, times=1):
    """[K, M] times [K, N], `times` over, with both operands loaded for every single product."""
    (depth, rows), cols = lhsT.shape, rhs.shape[1]
    y = nl.ndarray((rows, cols), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in [*range(0, rows, 128)] * times:
        for n in range(0, cols, 512):
            bank = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
            for k in range(0, depth, 128):
                left = nl.ndarray((128, 128), dtype=lhsT.dtype, buffer=nl.sbuf)
                right = nl.ndarray((128, 512), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=left, src=lhsT[k : k + 128, m : m + 128])
                nisa.dma_copy(dst=right, src=rhs[k : k + 128, n : n + 512])
                nisa.nc_matmul(dst=bank, stationary=left, moving=right)
            result = nl.ndarray((128, 512), dtype=lhsT.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=result, src=bank)
            nisa.dma_copy(dst=y[m : m + 128, n : n + 512], src=result)
    return y


def matmul_rows(repeat: int, size: int = 2048) -> Iterator[Row]:
    """Wall time of the tiled matmul over that of one NumPy product in float32: run each time, and as an operator's."""
    rng = np.random.default_rng(0)
    lhs_t, rhs = (rng.standard_normal((size, size)).astype(np.float32) for _ in range(2))
    for dtype, limit in ((np.float32, 1.8), (BF16, 2.0)):
        ours = tuple(operand.astype(dtype) for operand in (lhs_t, rhs))
        with using() as runs:
            tiled_matmul(*ours)
        detail = f"{runs[0].instructions} instructions"
        for how, kernel in (("", tiled_matmul), (", an operator's", tiled_matmul.as_operator())):
            pairs = by_turns(partial(kernel, *ours), lambda: lhs_t.T @ rhs, repeat)
            yield _ratio(f"matmul {np.dtype(dtype)} {size} cubed{how}", "x numpy", limit, pairs, detail)


def _ratio(name: str, unit: str, limit: float, pairs: list[tuple[Clock, Clock]], detail: str) -> Row:
    wall, processor = ([ours[i] / theirs[i] for ours, theirs in pairs] for i in (0, 1))
    seconds = [statistics.median(side[i][0] for side in pairs) for i in (0, 1)]
    return Row(name, unit, limit, wall, processor, f"{detail}, {seconds[0]:.3f} s to {seconds[1]:.3f} s")


# ---- a model


def model_rows(repeat: int) -> Iterator[Row]:
    """Wall time of a ViT-B/16 forward with every layer in NKI kernels over that of eager torch."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(0)
    eager = ViTForImageClassification(ViTConfig()).eval()
    ours = ViTForImageClassification(ViTConfig()).eval()
    ours.load_state_dict(eager.state_dict())
    kernels_neuron.kernelize(ours, device="neuron")
    pixels = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        first = timed(lambda: ours(pixels))[0]
        error = (ours(pixels).logits - eager(pixels).logits).abs().max().item()
        with using() as runs:
            ours(pixels)
        with using(settings=Settings(reuse=False)):
            each = timed(lambda: ours(pixels))[0]
        pairs = by_turns(lambda: ours(pixels), lambda: eager(pixels), repeat)
    count = sum(run.instructions for run in runs)
    detail = (
        f"{len(runs)} launches, {count} instructions, largest difference of a logit {error:.1e}, first forward "
        f"{first:.2f} s, one that runs all Python {each:.2f} s"
    )
    yield _ratio("ViT-B/16 float32, batch 1", "x eager torch", 4.0, pairs, detail)


# ---- price-only runs


def price_rows(repeat: int) -> Iterator[Row]:
    """Seconds and memory of GEMMs without data: 100,000 instructions, and a million in a process of its own."""
    times = []
    for _ in range(repeat):
        with using(settings=Settings(execute=False)) as runs:
            times.append(timed(lambda: tiled_matmul(*_operands(), times=4)))
    walls, processor = ([clock[i] for clock in times] for i in (0, 1))
    yield Row("price-only run of a GEMM", "s", 3.0, walls, processor, f"{runs[0].instructions} instructions")
    command = [sys.executable, __file__, "--memory-of-a-million"]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(child.stdout)
    detail = ", ".join(f"{mib:.0f} MiB after {count} instructions" for count, mib in found)
    yield Row("memory of a price-only run, a million instructions", "MiB", 1024.0, [found[-1][1]], [], detail)


def _operands() -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((4096, 4096), BF16), np.zeros((4096, 4096), BF16)


def memory_of_a_million() -> list[tuple[int, float]]:
    """(instructions, peak memory of this process in MiB), of no run and of GEMMs without data, one after another."""
    peaks = [(0, _peak_mib())]
    for times in (4, 20, 40):
        with using(settings=Settings(execute=False)) as runs:
            tiled_matmul(*_operands(), times=times)
        peaks.append((runs[0].instructions, _peak_mib()))
    return peaks


def _peak_mib() -> float:
    # getrusage would answer with the peak of the process that started this one, where that is higher
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


ROWS = {"overhead": overhead_rows, "matmul": matmul_rows, "model": model_rows, "price": price_rows}


def machine() -> dict[str, object]:
    """What the numbers depend on."""
    import torch  # not at the top: the process that measures memory does without

    return {
        "cpus": os.cpu_count(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "numpy": np.__version__,
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        **{name: os.environ.get(name) for name in ENVIRONMENT},
    }


def main() -> int:
    """Print a line a row; the exit code says whether all targets are reached."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--row", action="append", choices=ROWS, help="only these rows; may be given several times")
    parser.add_argument("--repeat", type=int, default=7, help="repetitions of each row")
    parser.add_argument("--memory-of-a-million", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of_a_million:
        print(json.dumps(memory_of_a_million()))
        return 0
    before = machine()
    if not arguments.json:
        print("  ".join(f"{name}={value}" for name, value in before.items()))
        print(f"{'row':52} {'median':>8} {'least':>8} {'greatest':>8} {'cpu time':>8} {'limit':>8}  verdict")
    rows = []
    for name in arguments.row or ROWS:
        for row in ROWS[name](arguments.repeat):
            rows.append(row)
            if not arguments.json:
                print(_line(row), flush=True)
    if arguments.json:
        table = [{**asdict(row), "median": row.median, "ok": row.ok} for row in rows]
        print(json.dumps({"machine": before, "rows": table}))
    return int(not all(row.ok for row in rows))


def _line(row: Row) -> str:
    processor = f"{statistics.median(row.processor):8.2f}" if row.processor else " " * 8
    numbers = f"{row.median:8.2f} {min(row.values):8.2f} {max(row.values):8.2f} {processor} {row.limit:8.1f}"
    return f"{row.name:52} {numbers}  {'ok' if row.ok else 'missed'}  {row.unit}; {row.detail}"


if __name__ == "__main__":
    sys.exit(main())
