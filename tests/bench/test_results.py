"""The results that are kept in bench/results/: complete, right, and what the README quotes."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KEPT = json.loads((ROOT / "bench" / "results" / "kernels.json").read_text())
README = (ROOT / "README.md").read_text()


def quoted_rows() -> list[list[str]]:
    """The cells of the README's table of results."""
    table = README.split("| kernel | workload |")[1].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def as_quoted(row) -> list[str]:
    spread = f"{row['speedup']:.2f} ({row['speedup_low']:.2f} to {row['speedup_high']:.2f})"
    times = (row["estimated_us"], row["bound_us"], row["baseline_us"])
    numbers = [
        *(f"{us:.1f}" for us in times),
        f"{row['body_over_bound']:.2f}",
        spread,
        f"{row['speedup_with_launch']:.2f}",
    ]
    return [row["kernel"], row["workload"], str(row["lnc"]), *numbers]


def test_the_readme_quotes_the_kept_results():
    kept = [as_quoted(row) for row in KEPT["rows"]]
    quoted = quoted_rows()
    assert len(quoted) >= 8 and {row[0] for row in quoted} == {row["kernel"] for row in KEPT["rows"]}
    assert [row for row in quoted if row not in kept] == []
    assert re.search(rf"commit {KEPT['commit'][:7]}\b", README) and KEPT["date"] in README


def test_every_kept_row_matched_its_reference_and_has_its_numbers():
    assert KEPT["dirty"] is False and KEPT["rows"]
    for row in KEPT["rows"]:
        assert row["ok"] and row["measured_us"] is None
        assert row["bound_us"] <= row["body_us"] and row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
        assert row["body_over_bound"] == pytest.approx(row["body_us"] / row["bound_us"])


def test_every_kernel_and_bench_workload_in_bfloat16_is_kept():
    from kernels_neuron.manifest import Manifest
    from kernels_neuron.spec import Spec

    kept = {(row["kernel"], row["workload"]) for row in KEPT["rows"]}
    for kernel in Manifest.read(ROOT / "kernel.toml").select(None):
        cases = [case for case in Spec.read(kernel.folder).cases(use="bench") if case.dtype == "bfloat16"]
        assert {(kernel.name, case.workload) for case in cases} <= kept
