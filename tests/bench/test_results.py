"""The results that are kept in bench/results/: complete, right, as the documents quote them and the model says them."""

import json
from pathlib import Path

import pytest

from kernels_neuron.flows.local import built_variants
from kernels_neuron.manifest import Manifest
from kernels_neuron.measure.against import moves, read_rows
from kernels_neuron.measure.bench import bench_row
from kernels_neuron.measure.cases import lacking, tasks
from kernels_neuron.measure.suites import read_suite

ROOT = Path(__file__).parents[2]
FILE = ROOT / "bench" / "results" / "kernels.json"
KEPT = json.loads(FILE.read_text())
MANIFEST = Manifest.read(ROOT / "kernel.toml")
KERNELS = MANIFEST.select(None)
# of each kernel, a row that is made in moments
QUICK = (
    ("layernorm", "vit_b16_batch_8", "float32", "trn3", 1),
    ("gemm", "vit_b_one_image_fc1", "bfloat16", "trn2", 1),
    ("vit_attn", "padded_batch_bench", "bfloat16", "trn2", 2),
    ("patch_embed", "vit_b16", "bfloat16", "trn2", 1),
)


def kept_tasks(variants):
    return [
        task
        for part in read_suite(ROOT / "bench", "kept")
        for task in tasks(MANIFEST.select(part.kernels), variants, "bench", part.keep)
    ]


@pytest.fixture(scope="module")
def page(page_script):
    return page_script("benchmarks")


def test_the_documents_quote_the_kept_results(page):
    for path in page.PAGES:
        assert page.filled(path.read_text(), KEPT) == path.read_text(), f"run docs/benchmarks.py for {path.name}"
    readme = (ROOT / "README.md").read_text()
    assert page.table(KEPT) in readme and page.made(KEPT) in readme


def test_every_kept_row_matched_its_reference_and_has_its_numbers():
    assert KEPT["dirty"] is False and KEPT["rows"]
    for row in KEPT["rows"]:
        assert row["ok"] and row["measured_us"] is None
        assert row["bound_us"] <= row["body_us"] and row["speedup_low"] <= row["speedup"] <= row["speedup_high"]
        assert row["body_over_bound"] == pytest.approx(row["body_us"] / row["bound_us"])


def test_every_row_of_the_suite_is_kept_in_order_and_in_both_dtypes_on_every_chip():
    wanted = kept_tasks({kernel.name: kernel.folder for kernel in KERNELS})
    keys = [(task.case.kernel, task.case.workload, task.case.dtype, task.arch, task.lnc) for task in wanted]
    assert [tuple(row[name] for name in ("kernel", "workload", "dtype", "arch", "lnc")) for row in KEPT["rows"]] == keys
    for kernel in KERNELS:
        found = {key[2:] for key in keys if key[0] == kernel.name}
        assert found == {(d, a, n) for d in ("bfloat16", "float32") for a in ("trn2", "trn3") for n in (1, 2)}


def test_chips_that_a_kernel_is_not_made_for_are_kept_by_name():
    assert KEPT["lacking"] == lacking(KERNELS) and "trn1" in KEPT["lacking"]


@pytest.mark.slow
def test_nothing_has_moved_in_the_quick_rows():
    variants = built_variants(MANIFEST, None)
    found = [
        bench_row(task)
        for task in kept_tasks(variants)
        if (task.case.kernel, task.case.workload, task.case.dtype, task.arch, task.lnc) in QUICK
    ]
    assert len(found) == len(QUICK) and all(row.ok for row in found)
    assert moves(found, read_rows(FILE)) == []
