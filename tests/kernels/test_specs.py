"""What docs/kernels.md says of the kernels' specs and references."""

import importlib.util
import re
from pathlib import Path

import pytest

from kernels_neuron.arch import TRN2
from kernels_neuron.cost.baseline import baseline
from kernels_neuron.manifest import Manifest, find_manifest
from kernels_neuron.spec import Spec

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "kernels.md").read_text()
KERNELS = Manifest.read(find_manifest(ROOT)).select()


def rows_under(heading: str) -> list[tuple[str, ...]]:
    section = PAGE.split(f"## {heading}")[1].split("\n## ")[0]
    cells = [
        tuple(cell.strip() for cell in line.strip("|").split("|")) for line in re.findall(r"^\|.*\|$", section, re.M)
    ]
    return cells[2:]


def reference_of(kernel):
    spec = importlib.util.spec_from_file_location(f"reference_{kernel.name}", kernel.folder / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, Spec.read(kernel.folder).entry)


def ops_of(kernel) -> list[tuple[str, ...]]:
    rows = {}
    for case in Spec.read(kernel.folder).cases(use="bench"):
        found = baseline(reference_of(kernel), case.make_inputs(), case.args, case.dtype, TRN2)
        which = ", ".join(f"{n} {op}" if n > 1 else op for op, n in sorted(found.counts.items()))
        row = (kernel.name, case.workload, str(found.launches), which)
        assert rows.setdefault(case.workload, row) == row, "the ops depend on the dtype"
    return list(rows.values())


def test_every_bench_workload_is_listed_with_the_ops_of_its_reference():
    assert rows_under("The baseline of a speedup") == [row for kernel in KERNELS for row in ops_of(kernel)]


def test_every_loosened_tolerance_is_listed():
    loosened = []
    for kernel in KERNELS:
        for dtype in Spec.read(kernel.folder).dtypes:
            reasons = {case.loose for case in Spec.read(kernel.folder).cases(dtype=dtype)} - {None}
            loosened += [(kernel.name, dtype, reason) for reason in sorted(reasons)]
    assert rows_under("Loosened tolerances") == loosened


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_kernel_has_twelve_workloads_half_of_them_ragged(kernel):
    cases = {case.workload: case for case in Spec.read(kernel.folder).cases()}
    # a workload is odd when one of its sizes fills no whole tile of 128 or 512
    odd = [name for name, case in cases.items() if any(size % 128 for size in case.sizes.values())]
    assert len(cases) >= 12
    assert 2 * len(odd) >= len(cases)
