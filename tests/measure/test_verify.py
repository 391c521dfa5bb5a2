"""verify and bench on a small kernel of their own: right, wrong, not run, and with torch ops around it."""

import shutil
from pathlib import Path

import pytest

from kernels_neuron.builder import build
from kernels_neuron.errors import UsageError
from kernels_neuron.manifest import Manifest
from kernels_neuron.measure.bench import BenchRow, bench_row
from kernels_neuron.measure.cases import Filter, tasks
from kernels_neuron.measure.verify import verify_row

ROOT = Path(__file__).parents[2]
VERIFY_FIELDS = "kernel workload dtype arch lnc ok error tolerance rel_l2 max_abs loose instructions"
BENCH_FIELDS = (
    "kernel workload dtype arch lnc ok body_us launch_us estimated_us estimated_low_us estimated_high_us once_us "
    "measured_us measured_min_us measured_max_us measured_count measured_first_us flops hbm_bytes bound_us "
    "body_over_bound baseline_us "
    "baseline_launches speedup speedup_low speedup_high speedup_with_launch tensor_peak_share dma_bound_share "
    "sim_wall_s instructions validated"
)


@pytest.fixture
def project(tmp_path):
    """The layernorm kernel in a project of its own; `change` rewrites one of its files."""
    shutil.copytree(ROOT / "nki_src" / "common", tmp_path / "nki_src" / "common")
    shutil.copytree(ROOT / "nki_src" / "layernorm", tmp_path / "nki_src" / "layernorm")
    (tmp_path / "kernel.toml").write_text(
        '[kernels.layernorm]\nrepo = "neuron-layernorm"\nversion = 1\nlicense = "apache-2.0"\n'
        'variants = ["torch-neuron", "torch-cpu"]\n'
    )

    def tasks_of(use="test", change=None, **keep):
        if change:
            name, old, new = change
            file = tmp_path / "nki_src" / "layernorm" / name
            assert old in file.read_text()
            file.write_text(file.read_text().replace(old, new))
        manifest = Manifest.read(tmp_path / "kernel.toml")
        variants = {built.name: built.variants["torch-neuron"] for built in build(manifest)}
        return tasks(manifest.select(), variants, use, Filter.of(**keep))

    return tasks_of


def one(project, **options):
    options = {"workloads": ["one_tile"], "dtypes": ["float32"], "archs": ["trn2"], "lncs": [1]} | options
    (task,) = project(**options)
    return task


def test_a_right_kernel_passes_on_both_chips_and_core_counts(project):
    found = project(workloads=["one_tile"], dtypes=["bfloat16"])
    rows = [verify_row(task) for task in found]
    assert {(row.arch, row.lnc) for row in rows} == {(arch, lnc) for arch in ("trn2", "trn3") for lnc in (1, 2)}
    assert all(row.ok and row.instructions > 0 and row.error <= 1 for row in rows)
    assert " ".join(rows[0].to_json()) == VERIFY_FIELDS


def test_a_wrong_kernel_misses_and_gets_no_time(project):
    task = one(project, change=("ops.py", "float(eps))", "float(eps) + 1.0)"))
    row = verify_row(task)
    assert not row.ok and row.error > 1 and "times what is allowed" in row.problem
    timed = bench_row(task)
    assert not timed.ok and timed.estimated_us is None and timed.speedup is None


def test_an_op_that_runs_no_kernel_fails(project):
    row = verify_row(
        one(
            project,
            change=(
                "ops.py",
                "return _layernorm(x, weight, bias, float(eps))",
                "return reference.layernorm(x, weight, bias, eps)",
            ),
        )
    )
    assert not row.ok and row.instructions == 0 and "did not run" in row.problem


def test_an_op_that_raises_is_a_row_that_says_so(project):
    row = verify_row(
        one(project, change=("ops.py", "    _check(x, weight, bias, eps)\n", "    raise TypeError('no')\n"))
    )
    assert not row.ok and row.error is None and "TypeError: no" in row.problem


def test_a_bench_row_has_all_its_numbers(project):
    row = bench_row(one(project))
    assert " ".join(row.to_json()) == BENCH_FIELDS
    assert row.ok and row.measured_us is None and row.baseline_launches == 1
    assert row.bound_us < row.estimated_low_us <= row.estimated_us <= row.estimated_high_us
    assert row.estimated_us == pytest.approx(row.body_us + row.launch_us)
    assert row.speedup == pytest.approx(row.baseline_us / row.body_us)
    assert row.speedup_low <= row.speedup <= row.speedup_high
    assert row.body_over_bound == pytest.approx(row.body_us / row.bound_us) and row.sim_wall_s > 0


def test_the_first_row_and_the_twentieth_of_a_case_are_estimated_alike(project):
    task = one(project)
    assert len({bench_row(task).estimated_us for _ in range(20)}) == 1


def test_torch_ops_around_the_kernel_are_paid_for(project):
    plain = bench_row(one(project))
    change = ("ops.py", "    rows, spacing = _as_rows(x)\n", "    rows, spacing = _as_rows(x.clone())\n")
    copied = bench_row(one(project, change=change))
    assert copied.launch_us == pytest.approx(2 * plain.launch_us)
    moved = 2 * 128 * 256 * 4 / 435.2e3
    assert copied.body_us - plain.body_us == pytest.approx(moved)


def as_parameter(tmp_path):
    """The weight of the project's layernorm becomes a parameter."""
    spec = tmp_path / "nki_src" / "layernorm" / "spec.toml"
    before = 'weight = { shape = ["H"], '
    assert before in spec.read_text()
    spec.write_text(spec.read_text().replace(before, before + "parameter = true, "))


def test_what_is_done_once_for_a_parameter_stands_apart(project, tmp_path):
    as_parameter(tmp_path)
    plain = bench_row(one(project))
    change = (
        "ops.py",
        "    from . import kernel\n",
        "    from . import kernel\n\n    if not hasattr(weight, 'seen'):\n        weight.seen = weight.clone()\n",
    )
    kept = bench_row(one(project, change=change))
    assert plain.once_us == 0
    assert kept.body_us == plain.body_us and kept.launch_us == plain.launch_us
    assert kept.once_us == pytest.approx(2 * 256 * 4 / 435.2e3)


def test_verify_runs_a_kernel_with_parameters_too(project, tmp_path):
    as_parameter(tmp_path)
    wrong = "    if isinstance(weight, torch.nn.Parameter):\n        weight = weight + 1\n"
    change = ("ops.py", "    from . import kernel\n", f"    from . import kernel\n\n{wrong}")
    assert verify_row(one(project)).ok
    row = verify_row(one(project, change=change))
    assert not row.ok and row.error > 1


def test_a_filter_that_nothing_has_is_refused(project):
    for keep in ({"workloads": ["one_tail"]}, {"dtypes": ["float8"]}, {"lncs": [3]}, {"archs": ["trn9"]}):
        with pytest.raises(UsageError):
            project(**keep)


def test_bench_rows_without_times_are_plain():
    row = BenchRow("gemm", "a", "bfloat16", "trn2", 1, ok=False)
    assert row.key == ("gemm", "a", "bfloat16", "trn2", 1)
