"""A handful of the vendor library's own cases in the simulator, where there is a clone of it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLONE = os.environ.get("KERNELS_NEURON_NKI_LIBRARY")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not CLONE,
        reason="KERNELS_NEURON_NKI_LIBRARY names no clone of aws-neuron/nki-library (docs/conformance.md)",
    ),
]


@pytest.mark.parametrize("kernel", ["rope_hf", "cumsum", "dynamic_elementwise_add"])
def test_cases_of_a_public_kernel_pass_unmodified(kernel, tmp_path):
    rows = tmp_path / "rows.jsonl"
    run = [sys.executable, ROOT / "bench" / "conformance" / "run.py", CLONE]
    subprocess.run([*run, "--kernel", kernel, "--sample", "3", "--out", rows], check=True, env=os.environ.copy())
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert len(found) == 3
    assert [(row["id"], row["error"]) for row in found if not row["ok"]] == []
    # kernels whose tests leave the comparison to the library's framework
    assert kernel == "rope_hf" or all(row.get("errors") for row in found)
