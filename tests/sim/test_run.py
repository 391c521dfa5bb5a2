import threading

import ml_dtypes
import numpy as np
import pytest
import torch

from kernels_neuron.cost.profile import profile
from kernels_neuron.errors import KernelError, UsageError
from kernels_neuron.settings import Settings
from kernels_neuron.sim import shim
from kernels_neuron.sim.context import using
from kernels_neuron.sim.races import RaceWarning
from kernels_neuron.sim.run import simulate

shim.install()
import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402


def load(x, shape=None):
    tile = nl.ndarray(shape or x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def output(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


@nki.jit
def scaled_sum(a, b, scale=1.0):
    out = output(a.shape, a.dtype)
    total = load(a)
    nisa.scalar_tensor_tensor(dst=total, data=load(b), op0=nl.multiply, operand0=scale, op1=nl.add, operand1=total)
    nisa.dma_copy(dst=out, src=total)
    return out


@nki.jit
def add_rows(x, y):
    """x + y, each program its share of the rows."""
    out = output(x.shape)
    share = x.shape[0] // nl.num_programs()
    start = nl.program_id() * share
    tile = load(x[start : start + share])
    nisa.tensor_tensor(dst=tile, data1=tile, data2=load(y[start : start + share]), op=nl.add)
    nisa.dma_copy(dst=out[start : start + share], src=tile)
    return out


def refused(rule, call):
    with pytest.raises(KernelError) as caught:
        call()
    assert caught.value.rule == rule
    return str(caught.value)


A = np.arange(32, dtype=np.float32).reshape(8, 4)
B = np.ones((8, 4), np.float32)


# ---- arguments


def test_arguments_bind_as_python_binds_them():
    expected = A + 2 * B
    for result in (
        scaled_sum(A, B, 2.0),
        scaled_sum(a=A, b=B, scale=2.0),
        scaled_sum(scale=2.0, b=B, a=A),
        simulate(scaled_sum, A, scale=2.0, b=B),
    ):
        np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(scaled_sum(A, B), A + B)


@pytest.mark.parametrize("kwargs", [{"c": 1}, {"a": A}])
def test_a_wrong_argument_is_named(kwargs):
    with pytest.raises(UsageError, match="scaled_sum"):
        scaled_sum(A, B, **kwargs)


def test_a_zero_dim_array_is_refused():
    with pytest.raises(UsageError, match="0-d array"):
        scaled_sum(A, np.array(1.0, np.float32))


def test_torch_in_gives_torch_out_and_any_strides_are_read():
    x = torch.arange(64.0).reshape(8, 8)
    result = scaled_sum(x.t()[:, ::2], x[:, 1::2].to(torch.float32))
    assert isinstance(result, torch.Tensor)
    torch.testing.assert_close(result, x.t()[:, ::2] + x[:, 1::2])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e5m2])
def test_narrow_torch_dtypes_pass_through_bit_exact(dtype):
    @nki.jit
    def identity(x):
        out = output(x.shape, x.dtype)
        nisa.dma_copy(dst=out, src=load(x))
        return out

    x = torch.randn(8, 16).to(dtype)
    assert torch.equal(identity(x).view(torch.uint8), x.view(torch.uint8))


@nki.jit
def increment(x, more=()):
    for tensor in (x, *more):
        tile = load(tensor)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.dma_copy(dst=tensor, src=tile)
    return x


@pytest.mark.parametrize("make", [lambda: A.copy(), lambda: torch.tensor(A), lambda: torch.arange(8).reshape(2, 4)])
def test_what_a_kernel_writes_into_an_argument_reaches_the_caller(make):
    x, nested = make(), make()
    before = np.asarray(x).copy()
    result = increment(x, (nested,))
    for tensor in (x, nested, result):
        np.testing.assert_array_equal(np.asarray(tensor), before + 1)


def test_a_strided_argument_is_written_in_place_and_nothing_around_it():
    canvas = np.full((8, 9), 7.0, np.float32)
    increment(canvas[:, 1:9:2])
    assert (canvas[:, 1::2] == 8).all() and (canvas[:, 0::2] == 7).all()


def test_a_read_only_argument_that_is_written_is_refused():
    x = A.copy()
    x.flags.writeable = False
    with pytest.raises(UsageError, match="read-only"):
        increment(x)


def test_an_argument_that_is_only_read_may_be_read_only():
    x = A.copy()
    x.flags.writeable = False
    np.testing.assert_array_equal(scaled_sum(x, B), A + B)


# ---- outputs


def test_writing_into_a_passed_through_result_leaves_the_input():
    @nki.jit
    def pair(x):
        out = output(x.shape)
        nisa.dma_copy(dst=out, src=load(x))
        return x, out

    x = A.copy()
    same, copied = pair(x)
    same[...] = -1
    copied[...] = -1
    np.testing.assert_array_equal(x, A)


def test_an_output_that_is_never_written_is_refused():
    def nothing(x):
        return output(x.shape)

    assert "128 of 128 bytes never written" in refused("unwritten-output", lambda: simulate(nothing, A))


def test_a_ragged_output_names_the_first_missing_element_and_the_line():
    def two_of_three(x):
        out = output((24, 4))
        nisa.dma_copy(dst=out[0:16].reshape((2, 8, 4))[0], src=load(x))
        nisa.dma_copy(dst=out[8:16], src=load(x))
        return out

    message = refused("unwritten-output", lambda: simulate(two_of_three, A))
    assert "the first at element [16, 0]" in message and "test_run.py" in message


def test_arguments_stay_as_they_were_when_an_output_is_refused():
    def write_then_fail(x):
        nisa.dma_copy(dst=x, src=load(x[::-1] if False else x))
        return output(x.shape)

    x = A.copy()
    refused("unwritten-output", lambda: simulate(write_then_fail, x))
    np.testing.assert_array_equal(x, A)


def test_an_output_lives_in_shared_hbm():
    refused("output-buffer", lambda: simulate(lambda x: load(x), A))
    refused("return-type", lambda: simulate(lambda x: None, A))


def test_a_price_only_run_has_the_shapes_and_the_instructions():
    with using(settings=Settings(execute=False)) as runs:
        result = scaled_sum(A, B)
    assert result.shape == A.shape and runs[0].instructions == 4


# ---- nesting, state, threads


def test_a_jitted_kernel_inside_a_kernel_is_a_part_of_it_and_takes_no_grid():
    @nki.jit
    def outer(a, b):
        return scaled_sum(a, b)

    @nki.jit
    def launching(a, b):
        return scaled_sum[2](a, b)

    np.testing.assert_array_equal(outer(A, B), scaled_sum(A, B))
    assert "scaled_sum was launched on [2]" in refused("nested-jit", lambda: launching(A, B))


def test_nothing_is_left_between_calls():
    fresh = scaled_sum(A, B).tobytes()
    narrow = A.astype(ml_dtypes.bfloat16)
    first = scaled_sum(narrow, narrow).tobytes()
    for _ in range(50):
        assert scaled_sum(A, B).tobytes() == fresh
        assert scaled_sum(narrow, narrow).tobytes() == first


def test_an_error_leaves_no_core_behind():
    refused("output-buffer", lambda: simulate(lambda x: load(x), A))
    np.testing.assert_array_equal(scaled_sum(A, B), A + B)
    refused("outside-kernel", lambda: nl.ndarray((8, 8), dtype=nl.float32))


def test_threads_do_not_see_each_other():
    results, errors = {}, []

    def work(seed):
        x = np.random.default_rng(seed).standard_normal((8, 4)).astype(np.float32)
        try:
            for _ in range(20):
                np.testing.assert_array_equal(scaled_sum(x, B), x + B)
            results[seed] = True
        except AssertionError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(results) == 4


# ---- two physical cores


def test_two_programs_fill_one_output():
    with using() as runs:
        np.testing.assert_array_equal(add_rows[2](A, B), A + B)
    assert runs[0].lnc == 2
    assert [trace.instructions for trace in runs[0].traces] == [4, 4]


def test_the_grid_comes_from_the_settings_when_none_is_given():
    with using(settings=Settings(lnc=2)) as runs:
        add_rows(A, B)
    assert runs[0].lnc == 2


def test_trn1_has_no_pair_of_cores():
    refused("lnc", lambda: simulate(add_rows[2], A, B, arch="trn1"))


@pytest.mark.parametrize("grid", [0, 3, (2, 2), True, "2"])
def test_an_impossible_grid_is_refused(grid):
    with pytest.raises(UsageError, match="1 or 2 physical cores"):
        add_rows[grid]


def test_two_programs_that_write_the_same_rows_race_and_their_repair_does_not():
    def kernel(x, overlap):
        out = output(x.shape)
        half = x.shape[0] // 2
        start = nl.program_id() * (half - overlap)
        nisa.dma_copy(dst=out[start : start + half + overlap], src=load(x[start : start + half + overlap]))
        return out

    assert "program" in refused("race", lambda: simulate(nki.jit(kernel)[2], A, 1))
    np.testing.assert_array_equal(simulate(nki.jit(kernel)[2], A, 0), A)


def test_equal_values_from_two_programs_are_a_warning_and_unequal_ones_a_race():
    def kernel(x, differ):
        out = output(x.shape)
        tile = load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(differ * nl.program_id()))
        nisa.dma_copy(dst=out, src=tile)
        return out

    with pytest.warns(RaceWarning, match=r"test_run.py:\d+: every program writes the same bytes"):
        np.testing.assert_array_equal(simulate(nki.jit(kernel)[2], A, 0), A)
    assert "program" in refused("race", lambda: simulate(nki.jit(kernel)[2], A, 1))


def test_a_program_that_reads_what_the_other_writes_races():
    def kernel(x):
        out = output(x.shape)
        if nl.program_id() == 0:
            nisa.dma_copy(dst=out, src=load(x))
        else:
            load(out[0:4])
        return out

    assert "reads bytes" in refused("race", lambda: simulate(nki.jit(kernel)[2], A))


def test_programs_that_allocate_different_outputs_are_refused():
    def kernel(x):
        out = output((8, 4) if nl.program_id() == 0 else (4, 8))
        nisa.dma_copy(dst=out, src=load(x))
        return out

    refused("lnc-divergence", lambda: simulate(nki.jit(kernel)[2], A))


# ---- jit and the language


def test_jit_takes_parentheses_and_mode_and_nothing_else():
    assert nki.jit(mode="auto")(add_rows.function).__name__ == "add_rows"
    with pytest.raises(UsageError, match="platform"):
        nki.jit(platform="trn2")


def test_an_output_in_private_hbm_is_a_switch():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.hbm)
        nisa.dma_copy(dst=out, src=load(x))
        return out

    refused("output-buffer", lambda: simulate(kernel, A))
    np.testing.assert_array_equal(simulate(kernel, A, settings=Settings(switches={"output_buffer": "hbm"})), A)


def test_a_kernel_that_returns_nothing_gives_what_it_wrote_into_its_arguments():
    def fills(x, y):
        nisa.dma_copy(dst=y, src=load(x))

    y = np.zeros_like(A)
    assert simulate(fills, A, y) is None
    np.testing.assert_array_equal(y, A)
    refused("return-type", lambda: simulate(lambda x: None, A))


def test_an_argument_stands_at_the_line_that_launched_the_kernel():
    with using() as runs:
        add_rows(A, A)
    trace = runs[0].traces[0]
    assert trace.lines[trace.tiles[0].where][0] == __file__


def test_arguments_lie_in_hbm_of_one_core_and_in_shared_hbm_of_two():
    seen = []

    def kernel(x):
        seen.append(x.buffer)
        return x

    simulate(kernel, A)
    simulate(nki.jit(kernel)[2], A)
    assert seen == [nl.hbm, nl.shared_hbm, nl.shared_hbm]


def test_a_kernel_for_one_chip_runs_on_that_chip_alone():
    kernel = nki.jit(platform_target="trn2")(add_rows.function)
    np.testing.assert_array_equal(simulate(kernel, A, A, arch="trn2"), A + A)
    np.testing.assert_array_equal(simulate(kernel[2], A, A, arch="trn2"), A + A)
    assert "the run is on trn3" in refused("platform-target", lambda: simulate(kernel, A, A, arch="trn3"))
    strict = Settings(switches={"platform_target": "refuse"})
    refused("platform-target", lambda: simulate(kernel, A, A, arch="trn2", settings=strict))
    assert nki.jit(fn=add_rows.function).target is None


def test_simulate_of_the_nki_module_runs_a_kernel():
    np.testing.assert_array_equal(nki.simulate(add_rows)(A, B), A + B)


def test_language_functions_build_new_tiles():
    def kernel(x):
        out = output((8, 4))
        tile = nl.load(x)
        tile = nl.add(nl.multiply(tile, 2.0), nl.ones((8, 4), dtype=nl.float32))
        tile = nl.subtract(1.0, nl.negative(tile))
        nl.store(out, nl.maximum(tile, nl.zeros((8, 4), dtype=nl.float32)))
        return out

    np.testing.assert_array_equal(simulate(kernel, A), np.maximum(1 + (2 * A + 1), 0))


def test_language_reductions_fold_the_free_axis():
    def kernel(x):
        out = output((8, 3))
        tile = nl.load(x)
        for i, reduce in enumerate((nl.sum, nl.max, nl.min)):
            nisa.dma_copy(dst=out[:, i : i + 1], src=reduce(tile, axis=1, keepdims=True))
        return out

    np.testing.assert_array_equal(simulate(kernel, A), np.stack([A.sum(1), A.max(1), A.min(1)], axis=1))


def test_language_functions_issue_the_instructions_that_the_reference_names():
    def kernel(x):
        out = output((8, 4))
        tile = nl.copy(nl.rsqrt(nl.add(nl.load(x), 1.0)))
        zeros = nl.zeros_like(tile)
        average = nl.mean(tile, axis=1, keepdims=True)
        product = nl.prod(tile, axis=1, keepdims=True)
        nisa.tensor_scalar(zeros, zeros, nl.add, average, op1=nl.add, operand1=product)
        nl.store(out, zeros)
        return out

    with using() as runs:
        result = nki.jit(kernel)(A)
    root = 1 / np.sqrt(A.astype(np.float64) + 1)
    expected = root.mean(axis=1, keepdims=True) + root.prod(axis=1, keepdims=True)
    np.testing.assert_allclose(result, np.broadcast_to(expected, (8, 4)), rtol=1e-6)
    engines = {record.name: record.engine for record in runs[0].traces[0].records}
    assert engines["tensor_copy"] == "vector" and "activation" not in engines


def test_an_operator_called_with_the_wrong_operands_is_refused():
    def kernel(x, call):
        call(nl.load(x))
        return x

    refused("op-call", lambda: simulate(kernel, A, lambda tile: nl.add(tile)))
    refused("operand-type", lambda: simulate(kernel, A, lambda tile: nl.add(1.0, 2.0)))
    refused("not-simulated", lambda: simulate(kernel, A, lambda tile: nl.matmul(tile, tile)))
    refused("grid-axis", lambda: simulate(kernel, A, lambda tile: nl.program_id(1)))


def test_a_kernel_that_overfills_sbuf_runs_where_spills_are_allowed_and_has_no_estimate():
    columns, tiles = 32768, 3  # three tiles of 128 KiB a partition are more than the 224 KiB of trn2

    @nki.jit
    def sums_late(x):
        out = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.shared_hbm)
        loaded = [nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf) for _ in range(tiles)]
        for i, tile in enumerate(loaded):
            nisa.dma_copy(dst=tile, src=x[i])
        for tile in loaded:
            nisa.activation(dst=tile, op=nl.copy, data=tile, scale=2.0)
        nisa.dma_copy(dst=out, src=loaded[0])
        return out

    x = np.ones((tiles, 128, columns), np.float32)
    with pytest.raises(KernelError, match="sbuf on trn2 holds"):
        simulate(sums_late, x, arch="trn2")
    spill = Settings(switches={"sbuf_overflow": "spill"})
    assert (simulate(sums_late, x, arch="trn2", settings=spill) == 2).all()
    with pytest.raises(UsageError, match="spills SBUF to HBM"):
        profile(sums_late, x, arch="trn2", settings=spill)
