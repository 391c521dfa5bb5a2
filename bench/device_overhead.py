"""What the emulated neuron device adds to a torch operator, in microseconds on this machine; exits 1 above the limit.

    .venv/bin/python bench/device_overhead.py [--json]

Each operator runs on tensors so small that only the call costs, on the CPU and on neuron by turns. Times are processor
time of this process, so that a busy machine disturbs little; a row holds medians, the limit is on the largest overhead.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch

import kernels_neuron

LIMIT_US = 150.0
CALLS, REPEATS = 300, 9
EMULATED, HOST = "neuron", "cpu"


def operators(device: str) -> dict[str, Callable[[], object]]:
    """Name -> one call of it on `device`."""
    x, y = torch.randn(8, 8, device=device), torch.randn(8, 8, device=device)
    q, k = torch.randn(2, 4, 8, device=device), torch.randn(2, 8, 4, device=device)
    index, mask = torch.tensor([1, 2], device=device), torch.ones(8, 8, dtype=torch.bool, device=device)
    weight = torch.randn(8, device=device)
    many = [torch.randn(8, device=device) for _ in range(8)]
    host = torch.randn(8, 8)
    return {
        "add": lambda: x + y,
        "add_": lambda: x.add_(0.0),
        "mul scalar": lambda: x * 2.0,
        "matmul": lambda: x @ y,
        "addmm": lambda: torch.addmm(weight, x, y),
        "layer_norm": lambda: torch.nn.functional.layer_norm(x, (8,), weight, weight),
        "softmax": lambda: x.softmax(-1),
        "gelu": lambda: torch.nn.functional.gelu(x),
        "sum": lambda: x.sum(),
        "cat": lambda: torch.cat((x, y)),
        "index": lambda: x[index],
        "where": lambda: torch.where(mask, x, y),
        "view": lambda: x.view(4, 16),
        "transpose": lambda: x.t(),
        "zeros": lambda: torch.zeros(8, 8, device=device),
        "clone": lambda: x.clone(),
        "copy from host": lambda: host.to(device, copy=True),
        "bmm": lambda: torch.bmm(q, k),
        "_foreach_add_ of 8": lambda: torch._foreach_add_(many, 1.0),
    }


def per_call_us(call: Callable[[], object]) -> float:
    """Mean processor time of one call over CALLS."""
    start = time.process_time()
    for _ in range(CALLS):
        call()
    return (time.process_time() - start) / CALLS * 1e6


def measure() -> dict[str, dict[str, float]]:
    """Operator -> cpu_us, neuron_us and overhead_us, medians over REPEATS."""
    kernels_neuron.device.enable()
    on_host, on_neuron = operators(HOST), operators(EMULATED)
    rows = {}
    for name in on_host:
        pairs = [(per_call_us(on_host[name]), per_call_us(on_neuron[name])) for _ in range(REPEATS)]
        rows[name] = {
            "cpu_us": statistics.median(cpu for cpu, _ in pairs),
            "neuron_us": statistics.median(neuron for _, neuron in pairs),
            "overhead_us": statistics.median(neuron - cpu for cpu, neuron in pairs),
        }
    return rows


def main() -> int:
    """Print a row an operator and the largest overhead."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        rows = measure()
    worst = max(row["overhead_us"] for row in rows.values())
    if arguments.json:
        print(json.dumps({"operators": rows, "worst_us": worst, "limit_us": LIMIT_US, "torch": torch.__version__}))
    else:
        print(f"{'operator':20} {'cpu_us':>8} {'neuron_us':>10} {'overhead_us':>12}")
        for name, row in rows.items():
            print(f"{name:20} {row['cpu_us']:8.1f} {row['neuron_us']:10.1f} {row['overhead_us']:12.1f}")
        print(f"largest overhead {worst:.1f} us, limit {LIMIT_US:.0f} us")
    return int(worst > LIMIT_US)


if __name__ == "__main__":
    sys.exit(main())
