"""How fast a timeline is made and how much memory it takes; exits 1 where a target is missed.

    .venv/bin/python bench/timeline_speed.py [--json] [--records N ...]

Prices a kernel that loads, multiplies, copies and stores in turn, without computing it, and times what comes after:
finding who waits for whom, and the replays over the throttle phases. Times are processor time. Memory is what the
records, the plan and the timelines added to the process at its peak. `calibration_s`, a loop of a million empty turns,
says how slow the machine was (0.02 to 0.03 s on an idle one).
"""

import argparse
import gc
import json
import resource
import sys
import time

import numpy as np

import kernels_neuron  # noqa: F401  makes `import nki` findable
from kernels_neuron.arch import chip
from kernels_neuron.cost.timeline import plan_launch, replays
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import using

import nki  # isort: skip
import nki.isa as nisa  # isort: skip
import nki.language as nl  # isort: skip

TARGET_S = 5.0  # for 100,000 records
IDLE_S = 0.03
TARGET_BYTES = 1 << 30  # for a million
EACH = 6  # records of one turn


@nki.jit
def turns(stationary, moving, count=1):
    """`count` products of fresh tiles, each stored in one of eight places."""
    y = nl.ndarray((8, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for turn in range(count):
        left, right = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for x in (stationary, moving))
        nisa.dma_copy(dst=left, src=stationary)
        nisa.dma_copy(dst=right, src=moving)
        bank, out = (nl.ndarray((128, 512), dtype=nl.float32, buffer=where) for where in (nl.psum, nl.sbuf))
        nisa.nc_matmul(dst=bank, stationary=left, moving=right)
        nisa.tensor_copy(dst=out, src=bank)
        nisa.dma_copy(dst=y[turn % 8], src=out)
    return y


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def calibration_s() -> float:
    """Seconds of processor time for a million empty turns of a loop, the mean of five."""
    began = time.process_time()
    for _ in range(5_000_000):
        pass
    return (time.process_time() - began) / 5


def measure(records: int) -> dict[str, float]:
    """One row: a kernel of about `records` records."""
    stationary, moving = np.zeros((128, 128), np.float16), np.zeros((128, 512), np.float16)
    before, calibrations = peak_bytes(), [calibration_s()]
    gc.collect()
    began = time.process_time()
    with using("trn2", Settings(execute=False)) as runs:
        turns(stationary, moving, count=max(8, records // EACH))
    priced = time.process_time()
    traces = runs[0].traces
    plan = plan_launch(traces, chip("trn2"))
    planned = time.process_time()
    bodies, _ = replays(plan)
    replayed = time.process_time()
    calibrations.append(calibration_s())
    return {
        "records": sum(len(trace.records) for trace in traces),
        "calibration_s": sum(calibrations) / 2,
        "priced_s": priced - began,
        "plan_s": planned - priced,
        "replays_s": replayed - planned,
        "phases": len(bodies),
        "timeline_s": replayed - priced,
        "peak_mib": (peak_bytes() - before) / 2**20,
    }


def main() -> None:
    """Print a row per size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, nargs="*", default=[100_000])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = [measure(records) for records in given.records]
    if given.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print("  ".join(f"{name} {value:.4g}" for name, value in row.items()))
    # an idle machine turns the loop in IDLE_S; a busy one is given as much longer as it took there
    slow = any(
        row["timeline_s"] * 100_000 / row["records"] > TARGET_S * max(1.0, row["calibration_s"] / IDLE_S)
        for row in rows
    )
    large = any(row["peak_mib"] * 2**20 * 1_000_000 / row["records"] > TARGET_BYTES for row in rows)
    sys.exit(1 if slow or large else 0)


if __name__ == "__main__":
    main()
