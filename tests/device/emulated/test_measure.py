"""verify and bench through device tensors. The emulated device stands for a real one, a stand-in clock for its time."""

import itertools
from pathlib import Path

import pytest
import torch

from kernels_neuron.builder import build
from kernels_neuron.cli.main import run
from kernels_neuron.errors import UsageError
from kernels_neuron.manifest import Manifest
from kernels_neuron.measure.bench import bench_row, measured
from kernels_neuron.measure.cases import Filter, tasks
from kernels_neuron.measure.on_device import _moved, checked_runner, find_device, only_this_device, verify_on_device
from kernels_neuron.measure.timing import Timer


@pytest.fixture
def project(tmp_path, monkeypatch, capsys):
    """A folder with one kernel from `new`."""
    monkeypatch.chdir(tmp_path)
    assert run(["new", "swish"]) == 0
    capsys.readouterr()
    return tmp_path


def tasks_of(project: Path, use: str):
    manifest = Manifest.read(project / "kernel.toml")
    variants = {built.name: built.variants["torch-neuron"] for built in build(manifest)}
    return tasks(manifest.select(), variants, use, only_this_device(Filter.of(dtypes=["float32"]), find_device()))


def ticking(step_us):
    ticks = itertools.count()
    return Timer(warmup=1, repetitions=3, clock=lambda: next(ticks) * step_us / 1e6)


def test_every_case_runs_on_device_tensors_and_matches(project):
    rows = verify_on_device(tasks_of(project, "test"))
    assert rows and all(row.ok and row.instructions > 0 for row in rows)


def test_a_measured_row_has_median_spread_and_count_beside_the_estimate(project):
    task = tasks_of(project, "bench")[0]
    row = measured(bench_row(task), task, ticking(7.0))
    assert (row.measured_us, row.measured_min_us, row.measured_max_us) == pytest.approx((7.0, 7.0, 7.0))
    assert row.measured_count == 3 and row.measured_first_us == pytest.approx(7.0) and row.estimated_us > 0


def test_a_kernel_that_misses_on_the_device_has_no_number_at_all(project):
    task = tasks_of(project, "bench")[0]
    row = bench_row(task)
    (project / "nki_src" / "swish" / "reference.py").write_text(
        (project / "nki_src" / "swish" / "reference.py").read_text().replace("return ", "return 1 + ")
    )
    wrong = measured(row, tasks_of(project, "bench")[0], ticking(7.0))
    assert not wrong.ok and wrong.measured_us is None and wrong.estimated_us is None
    assert wrong.problem.startswith("on the device: error ")


def test_a_tensor_keeps_its_strides_on_the_way_to_the_device():
    x = torch.arange(24.0).reshape(4, 6)[:, 1:4].T
    there = _moved(x)
    assert there.device.type == "neuron" and there.stride() == x.stride() and there.cpu().equal(x)
    assert _moved(None) is None


def test_one_chip_and_the_machines_cores_are_all_a_device_runs():
    keep = only_this_device(Filter(), find_device())
    assert (keep.archs, keep.lncs) == (("trn2",), (1,))
    with pytest.raises(UsageError, match="one chip, got trn2, trn3"):
        only_this_device(Filter.of(archs=["trn2", "trn3"]), find_device())
    with pytest.raises(UsageError, match="logical cores are of 1"):
        only_this_device(Filter.of(lncs=[2]), find_device())


def test_the_emulated_device_is_used_only_when_asked_for():
    assert checked_runner(None) == "simulator" and checked_runner("device") == "device"
    with pytest.raises(UsageError, match="simulator or device"):
        checked_runner("vendor")


def test_the_emulated_device_verifies_and_does_not_measure(project, capsys):
    assert run(["verify", "--runner", "device", "--dtype", "float32"]) == 0
    assert "match their reference" in capsys.readouterr().out
    assert run(["bench", "--runner", "device"]) == 2
    assert "the emulated device has no time to measure" in capsys.readouterr().err
