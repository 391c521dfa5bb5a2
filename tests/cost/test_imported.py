"""Replaying profiles: the four published trn2 traces where they are there, and a small one written here."""

import gzip
import json
import os
from pathlib import Path
from statistics import fmean

import pytest

from kernels_neuron.cost.imported import compare_profile
from kernels_neuron.cost.switches import LATENCY_TAILS, SWITCHES
from kernels_neuron.errors import UsageError

FOLDER = os.environ.get("KERNELS_NEURON_TRN2_TRACES")
needs_traces = pytest.mark.skipif(
    not FOLDER or not Path(FOLDER).is_dir(), reason="KERNELS_NEURON_TRN2_TRACES names no folder of trn2 profiles"
)
MEASURED_US = {"baseline_bf16": 38.67, "baseline_fp32": 43.01, "fused_bf16": 20.55, "fused_fp32": 22.72}


@pytest.fixture(scope="module")
def replays():
    return {name: compare_profile(Path(FOLDER) / f"{name}_s512.json.gz", SWITCHES) for name in MEASURED_US}


def mean_absolute_error(replays, off=None):
    bodies = {name: each.without[off] if off else each.estimated_body_us for name, each in replays.items()}
    return fmean(abs(body / replays[name].measured_body_us - 1) for name, body in bodies.items())


@needs_traces
def test_the_body_of_a_profile_is_measured_as_published(replays):
    measured = {name: each.measured_body_us for name, each in replays.items()}
    assert measured == pytest.approx(MEASURED_US, abs=0.011)


@needs_traces
def test_each_replay_is_within_eight_percent_and_their_mean_error_within_four(replays):
    assert all(abs(each.error) <= 0.08 for each in replays.values())
    assert mean_absolute_error(replays) <= 0.04
    assert all(each.low_us < each.estimated_body_us < each.high_us for each in replays.values())


@needs_traces
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_the_speedup_of_fusion_is_within_ten_percent(replays, dtype):
    before, after = replays[f"baseline_{dtype}"], replays[f"fused_{dtype}"]
    measured = before.measured_body_us / after.measured_body_us
    assert before.estimated_body_us / after.estimated_body_us == pytest.approx(measured, rel=0.10)


@needs_traces
def test_each_part_of_the_model_earns_its_place(replays):
    whole = mean_absolute_error(replays)
    assert mean_absolute_error(replays, "fixed DMA costs") >= whole + 0.10
    assert mean_absolute_error(replays, "throttle") >= whole + 0.01
    assert all(each.without[LATENCY_TAILS] < each.estimated_body_us for each in replays.values())


@needs_traces
def test_engines_and_instructions_are_compared_one_by_one(replays):
    found = replays["fused_bf16"]
    assert set(found.engines) == {"tensor", "vector", "scalar", "gpsimd", "sync"}
    for engine in ("tensor", "vector", "scalar"):
        each = found.engines[engine]
        assert each.low_us <= each.estimated_body_us <= each.high_us
        assert each.estimated_body_us == pytest.approx(each.measured_body_us, rel=0.10)
    kinds = {(kind.engine, kind.opcode): kind for kind in found.kinds}
    reduce = kinds["vector", "TENSOR_REDUCE"]
    assert reduce.count == 10 and reduce.estimated_us == pytest.approx(reduce.measured_us, rel=0.02)
    assert found.unpriced == ()


# a profile of one load, one copy that waits for it and one store that waits for the copy
DMA = "semaphore={} sem_increment=16 src_elem_size=512 dst_elem_size=512 src_pattern=[512,1][128,1] compute_op=NONE "
SMALL = {
    "metadata": [{"pe_clock_freq": 2.4}],
    "instruction": [
        {"label": "Sync", "opcode": "DMA_DIRECT2D", "operands": DMA.format(8), "hbm_read_bytes": 65536, "pc": 5},
        {
            "label": "Vector",
            "opcode": "COPY",
            "operands": "S[8] (qSyncDynamicHW)>=16 S[6] (Vector)++@complete src=fp32@0x100[1,1][128,1] "
            "dst=fp32@0x900[1,1][128,1] channels=128 ",
            "pc": 9,
        },
        {
            "label": "Scalar",
            "opcode": "DMA_DIRECT2D",
            "operands": "S[6] (Vector)>=1 " + DMA.format(9),
            "hbm_write_bytes": 65536,
            "pc": 3,
        },
    ],
    "dma": [{"timestamp": 6300, "duration": 27, "transfer_size": 512, "queue_type": "hardware_dynamic"}],
}


@pytest.fixture
def small():
    value = json.loads(json.dumps(SMALL))
    for position, row in enumerate(value["instruction"]):
        start = {"Sync": 1000, "Vector": 3300, "Scalar": 3700}[row["label"]]
        row |= {"subgraph": "sg00", "bir_instruction_name": f"I-{position}", "timestamp": start, "duration": 540}
    value["dma"][0]["subgraph"] = "sg00"
    return value


@pytest.fixture
def written(tmp_path):
    def write(value, name="profile.json"):
        path = tmp_path / name
        raw = json.dumps(value).encode()
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return path

    return write


@pytest.mark.parametrize("name", ["profile.json", "profile.json.gz"])
def test_a_small_profile_is_replayed_along_its_semaphores(small, written, name):
    found = compare_profile(written(small, name)).to_json()
    assert found["measured_body_us"] == pytest.approx(5.327)
    # load 1.33 to the first packet, 0.31 of stall and spread, 0.19 of data, 0.38 to the copy, which takes 0.28;
    # store 1.19 and 0.33
    assert found["estimated_body_us"] == pytest.approx(4.05, rel=0.02)
    assert found["low_us"] == found["high_us"]  # no TensorE work, no phases
    assert json.loads(json.dumps(found["engines"]))["vector"]["measured_body_us"] == pytest.approx(2.84)


def test_a_semaphore_that_nobody_raises_belongs_to_the_runtime(small, written):
    before = compare_profile(written(small)).estimated_body_us
    small["instruction"][0]["operands"] = "S[77] (runtime)>=3 " + small["instruction"][0]["operands"]
    assert compare_profile(written(small)).estimated_body_us == before


def test_an_unknown_instruction_is_priced_by_its_elements_and_named(small, written):
    small["instruction"][1]["opcode"] = "NEWEST_THING"
    found = compare_profile(written(small))
    assert found.unpriced == ("NEWEST_THING",)
    assert found.estimated_body_us > 3


def test_instructions_that_wait_for_each_other_are_refused(small, written):
    small["instruction"][0]["operands"] = "S[6] (Vector)>=1 " + small["instruction"][0]["operands"]
    with pytest.raises(UsageError, match="wait for each other"):
        compare_profile(written(small))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda value: value.pop("dma"), "no list 'dma'"),
        (lambda value: value["instruction"][1].pop("pc"), "no field 'pc'"),
        (lambda value: value["instruction"][1].update(label="Warp"), "no engine is called 'Warp'"),
        (lambda value: value["instruction"][1].update(duration="soon"), "another form"),
        (lambda value: value["dma"].clear(), "no data packets"),
        (lambda value: value["instruction"].clear(), "no instruction of a kernel"),
    ],
)
def test_a_file_that_lacks_something_says_what(small, written, change, message):
    change(small)
    with pytest.raises(UsageError, match=message):
        compare_profile(written(small))


def test_a_file_that_is_no_profile_is_refused(tmp_path):
    text = tmp_path / "text.json"
    text.write_text("hello")
    listing = tmp_path / "list.json"
    listing.write_text("[]")
    for path in (text, listing, tmp_path / "absent.json"):
        with pytest.raises(UsageError, match=path.name):
            compare_profile(path)
