import json

import ml_dtypes
import numpy as np
import pytest

import kernels_neuron
from kernels_neuron.cost.profile import profile
from kernels_neuron.errors import UsageError
from kernels_neuron.settings import Settings


def test_an_estimate_lies_between_its_bound_and_its_spread(kernels):
    a = np.ones((128, 1024), ml_dtypes.bfloat16)
    found = profile(kernels.matmuls, a, a[:, :512], arch="trn2")
    assert found.bound_us < found.low_us <= found.body_us <= found.high_us
    assert found.low_us < found.high_us  # the throttle shows
    assert found.estimated_us == pytest.approx(found.body_us + 8.5)
    assert set(found.engines) == {"tensor", "vector", "scalar", "gpsimd", "dma"}
    assert all(0 <= share <= 1 for share in found.engines.values())


def test_the_critical_path_covers_the_whole_body(kernels):
    found = profile(kernels.rows_doubled, np.ones((1024, 512), np.float32))
    assert sum(segment.share for segment in found.path) == pytest.approx(1.0)
    assert sum(segment.us for segment in found.path) == pytest.approx(found.body_us)
    assert found.path[0].where.startswith("kernels.py:")
    assert found.critical_path[0].startswith(f"{found.path[0].share:.0%} ")


def test_json_holds_what_the_command_promises(kernels):
    found = profile(kernels.copy, np.ones((128, 64), np.float32)).to_json()
    promised = {"estimated_us", "body_us", "launch_us", "bound_us", "engines", "critical_path", "instructions"}
    promised |= {"would_help", "dma", "flops", "hbm_bytes"}
    assert promised <= set(json.loads(json.dumps(found)))


def test_two_cores_take_the_time_of_the_slower_one(kernels):
    @kernels_neuron.sim.run.jit
    def uneven(x):
        import nki.isa as nisa
        import nki.language as nl

        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        rows = slice(0, 384) if nl.program_id(0) == 0 else slice(384, 512)
        for start in range(rows.start, rows.stop, 128):
            tile = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[start : start + 128])
            nisa.dma_copy(dst=y[start : start + 128], src=tile)
        return y

    found = profile(uneven[2], np.ones((512, 512), np.float32))
    assert found.lnc == 2 and found.trace.program == 0
    assert found.body_us == pytest.approx(max(line.body_ns for *_, line in found.programs) / 1e3)


def test_pricing_alone_gives_the_same_estimate(kernels):
    x = np.ones((256, 512), np.float32)
    run = profile(kernels.rows_doubled, x)
    priced = profile(kernels.rows_doubled, x, settings=Settings(execute=False))
    assert run.body_us == priced.body_us


def test_the_first_and_the_last_call_are_estimated_alike(kernels):
    x = np.ones((128, 512), np.float32)
    assert len({profile(kernels.copy, x).estimated_us for _ in range(5)}) == 1


def test_profile_is_part_of_the_public_face(kernels):
    assert kernels_neuron.profile is profile


def test_a_call_that_launches_nothing_is_refused():
    with pytest.raises(UsageError):
        profile(lambda: None)


def test_the_perfetto_trace_has_a_track_per_engine_and_ring(kernels, tmp_path):
    found = profile(kernels.rows_doubled, np.ones((256, 512), np.float32))
    found.write_trace(tmp_path / "out.json")
    events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert tracks == {"sync", "sync dma", "vector", "scalar", "scalar dma"}
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == 6 + 4
    assert max(span["ts"] + span["dur"] for span in spans) == pytest.approx(found.body_us)
    assert all("kernels.py:" in span["args"]["where"] for span in spans)


def test_what_a_chip_without_measurements_says_is_called_unvalidated(kernels, tmp_path):
    x = np.ones((128, 64), np.float32)
    for arch, basis in (("trn2", "(estimated)"), ("trn3", "(estimated, unvalidated)")):
        found = profile(kernels.copy, x, arch=arch)
        assert found.to_json()["validated"] is found.validated is (arch == "trn2")
        found.write_trace(tmp_path / "out.json")
        events = json.loads((tmp_path / "out.json").read_text())["traceEvents"]
        names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
        assert f"{arch} core 0 {basis}" in names
