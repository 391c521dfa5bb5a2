"""Random numbers: their range, and that the same state gives the same numbers."""

import numpy as np
import pytest

from kernels_neuron.sim.isa.enums import engine
from kernels_neuron.sim.random import Xorwow, uniform

GENERATOR = {"gpsimd": engine.gpsimd, "vector": engine.vector}


def words(bench, shape=(4, 32), dtype="uint32", **kwargs):
    out = bench.empty(shape, dtype)
    bench.issue("rng", out, **kwargs)
    return out.array().copy()


def test_xorwow_matches_the_published_recurrence():
    generator = Xorwow(1, 1, 0)
    generator.state[0, 0] = [123456789, 362436069, 521288629, 88675123, 5783321, 6615241]
    # Marsaglia 2003, Xorshift RNGs, section 3.1
    x, y, z, w, v, d = (int(word) for word in generator.state[0, 0])
    expected = []
    for _ in range(5):
        t = x ^ (x >> 2)
        x, y, z, w = y, z, w, v
        v = (v ^ (v << 4) ^ t ^ (t << 1)) & 0xFFFFFFFF
        d = (d + 362437) & 0xFFFFFFFF
        expected.append((d + v) & 0xFFFFFFFF)
    assert generator.draw(slice(0, 1), 5)[0].tolist() == expected


@pytest.mark.parametrize("where", GENERATOR)
def test_rng_matches_numpy(machine, where):
    bench, twin = machine(seed=3), machine(seed=3)
    first = words(bench, (128, 64), engine=GENERATOR[where])
    np.testing.assert_array_equal(first, words(twin, (128, 64), engine=GENERATOR[where]))
    assert not np.array_equal(first, words(bench, (128, 64), engine=GENERATOR[where]))
    assert not np.array_equal(first, words(machine(seed=4), (128, 64), engine=GENERATOR[where]))
    mean = np.unpackbits(first.view(np.uint8)).mean()
    assert abs(mean - 0.5) < 0.01


def test_rng_keeps_the_lowest_bits_of_narrow_integers(machine):
    wide, narrow = words(machine()), words(machine(), dtype="int8")
    np.testing.assert_array_equal(wide.astype(np.uint8).view(np.int8), narrow)


def test_set_rng_seed_matches_numpy(machine):
    bench = machine()
    seed = bench.tile(np.array([[7]], np.int32))
    bench.issue("set_rng_seed", seed)
    first = words(bench)
    words(bench)
    bench.issue("set_rng_seed", seed)
    np.testing.assert_array_equal(first, words(bench))


def state_instructions(machine, where, arch):
    bench = machine(arch)
    size = 6 if where == "gpsimd" else 24
    kept = bench.empty((4, size), "uint32")
    bench.issue("rand_get_state", kept, engine=GENERATOR[where])
    first = words(bench, engine=GENERATOR[where])
    bench.issue("rand_set_state", kept, engine=GENERATOR[where])
    np.testing.assert_array_equal(first, words(bench, engine=GENERATOR[where]))
    return bench, kept


@pytest.mark.parametrize(("where", "arch"), [("gpsimd", "trn2"), ("vector", "trn3")])
def test_rand_set_state_matches_numpy(machine, where, arch):
    state_instructions(machine, where, arch)


@pytest.mark.parametrize(("where", "arch"), [("gpsimd", "trn2"), ("vector", "trn3")])
def test_rand_get_state_matches_numpy(machine, where, arch):
    _, kept = state_instructions(machine, where, arch)
    assert len(np.unique(kept.array())) > 20


@pytest.mark.parametrize("by_row", [False, True])
def test_rand2_matches_numpy(machine, by_row):
    bench = machine("trn3")
    out = bench.empty((128, 256))
    low = bench.tile(np.full((128, 1), -3.0)) if by_row else -3.0
    bench.issue("rand2", out, low, 5.0)
    values = out.array()
    assert values.min() >= -3 and values.max() <= 5
    assert abs(values.mean() - 1) < 0.1 and abs(values.std() - 8 / np.sqrt(12)) < 0.1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("prob", [0.0, 0.25, 1.0])
def test_dropout_matches_numpy(machine, dtype, prob):
    bench = machine()
    data, out = bench.tile(np.full((128, 64), 3), dtype), bench.empty((128, 64), dtype)
    bench.issue("dropout", out, data, prob)
    values = out.array().astype(np.float32)
    assert set(np.unique(values)) <= {0.0, 3.0}
    assert abs((values == 0).mean() - prob) < (0.02 if 0 < prob < 1 else 1e-9)


def test_dropout_takes_a_probability_per_partition(machine):
    bench = machine()
    data, out = bench.tile(np.ones((2, 512))), bench.empty((2, 512))
    bench.issue("dropout", out, data, bench.tile(np.array([[0.0], [1.0]])))
    assert out.array().sum(axis=1).tolist() == [512.0, 0.0]


def test_uniform_values_never_reach_one():
    assert uniform(np.array([0, 2**32 - 1], np.uint32)).tolist() == [0.0, 1 - 2.0**-24]


@pytest.mark.parametrize("name", ["rng", "dropout", "set_rng_seed", "rand_set_state", "rand_get_state", "rand2"])
def test_random_instructions_are_priced(machine, name):
    assert price_of(machine, name).latency_ns > 0


def price_of(machine, name):
    bench = machine("trn3" if name == "rand2" else "trn2")
    tile = bench.tile(np.zeros((128, 1024)))
    calls = {
        "rng": (bench.empty((128, 1024), "uint32"),),
        "rand2": (tile, 0.0, 1.0),
        "dropout": (tile, tile, 0.5),
        "set_rng_seed": (bench.tile(np.zeros((1, 1), np.uint32)),),
        "rand_set_state": (bench.tile(np.ones((128, 6), np.uint32)),),
        "rand_get_state": (bench.empty((128, 6), "uint32"),),
    }
    (record,) = bench.issue(name, *calls[name])
    return record.price


def test_rng_price(machine):
    assert price_of(machine, "rng").issue_ns == pytest.approx(1024 / 0.96 + 70)


def test_rand2_price(machine):
    assert price_of(machine, "rand2").issue_ns == pytest.approx(256 / 1.2 + 70)


def test_dropout_price(machine):
    assert price_of(machine, "dropout").issue_ns == pytest.approx(1024 / 0.96 + 70)


def test_set_rng_seed_price(machine):
    assert price_of(machine, "set_rng_seed").issue_ns == pytest.approx(1 / 0.96 + 70)


def test_rand_set_state_price(machine):
    assert price_of(machine, "rand_set_state").issue_ns == pytest.approx(156 / 1.2)


def test_rand_get_state_price(machine):
    assert price_of(machine, "rand_get_state").issue_ns == pytest.approx(156 / 1.2)


def test_random_instructions_refuse(machine):
    bench, old, new = machine(), machine("trn1"), machine("trn3")
    tile, wide = bench.tile(np.zeros((4, 8))), bench.empty((4, 8), "uint32")
    bench.refuses("operand-dtype", "rng", tile)
    bench.refuses("engine", "rng", wide, engine=engine.scalar)
    bench.refuses("operand-buffer", "rng", bench.empty((4, 8), "uint32", "psum"), engine=engine.gpsimd)
    old.refuses("chip-generation", "rng", old.empty((4, 8), "uint32"), engine=engine.gpsimd)
    bench.refuses("chip-generation", "rand2", tile, 0.0, 1.0)
    new.refuses("random-range", "rand2", new.empty((4, 8)), 1.0, 1.0)
    bench.refuses("random-range", "dropout", tile, tile, 1.5)
    bench.refuses("operand-extent", "set_rng_seed", bench.tile(np.zeros((2, 1), np.uint32)))
    bench.refuses("operand-extent", "rand_set_state", bench.tile(np.zeros((4, 24), np.uint32)))
    bench.refuses("chip-generation", "rand_get_state", bench.empty((4, 24), "uint32"), engine=engine.vector)
