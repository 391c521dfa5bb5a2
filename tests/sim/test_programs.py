"""Compiled kernels: a launch that is played again gives what a launch of the kernel itself gives."""

import gc
import sys
import threading
import weakref

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
import torch

from kernels_neuron.errors import KernelError, UsageError
from kernels_neuron.settings import Settings
from kernels_neuron.sim import programs
from kernels_neuron.sim.context import using

CALLS = []


@nki.jit
def product(lhsT, rhs, times, bias=None):
    """times * (lhsT.T @ rhs), twice into one PSUM tile, and the sum of its rows."""
    CALLS.append(times)
    (depth, rows), cols = lhsT.shape, rhs.shape[1]
    y = nl.ndarray((rows, cols), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    bank = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.psum)
    left = nl.ndarray((depth, rows), dtype=lhsT.dtype, buffer=nl.sbuf)
    right = nl.ndarray((depth, cols), dtype=rhs.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=lhsT)
    nisa.dma_copy(dst=right, src=rhs)
    for turn in range(times):
        nisa.nc_matmul(dst=bank, stationary=left, moving=right, accumulate=turn > 0)
    result = nl.ndarray((rows, cols), dtype=lhsT.dtype, buffer=nl.sbuf)
    nisa.activation_reduce(dst=result, data=bank, op=nl.copy, reduce_op=nl.add, reduce_res=total)
    if bias is not None:
        nisa.tensor_scalar(dst=result, data=result, op0=nl.add, operand0=float(bias))
    nisa.dma_copy(dst=y, src=result)
    nisa.dma_copy(dst=sums, src=total)
    return y, sums


def pair(rng, depth=16, rows=8, cols=24, dtype=np.float32):
    return rng.standard_normal((depth, rows)).astype(dtype), rng.standard_normal((depth, cols)).astype(dtype)


@pytest.fixture
def compiled():
    CALLS.clear()
    kernel = nki.jit(product.function)
    return kernel.as_operator()


def test_a_launch_of_the_same_kind_runs_no_python_and_gives_the_same_bits(rng, compiled):
    for _ in range(4):
        operands = pair(rng)
        for found, expected in zip(compiled(*operands, 3), product(*operands, 3), strict=True):
            np.testing.assert_array_equal(found, expected)
    assert len(CALLS) == 1 + 4


def test_other_shapes_dtypes_and_values_are_other_programs(rng, compiled):
    calls = [
        (*pair(rng), 3),
        (*pair(rng, rows=4), 3),
        (*pair(rng, dtype=np.float16), 3),
        (*pair(rng), 2),
        (*pair(rng), 2, 1),
        (*pair(rng), 2, 1.0),
        (*pair(rng), 2, True),
        (*pair(rng), 2, 0.0),
        (*pair(rng), 2, -0.0),
        (*pair(rng), 2, float("nan")),
        (*pair(rng), 2, np.float32(1.0)),
    ]
    for _ in range(2):
        for call in calls:
            for found, expected in zip(compiled(*call), product(*call), strict=True):
                np.testing.assert_array_equal(found, expected)
    assert len(CALLS) == len(calls) + 2 * len(calls)


def test_settings_and_chips_are_other_programs(rng, compiled):
    operands = pair(rng)
    for settings in (Settings(), Settings(nki="0.6"), Settings(switches={"matmul_sum": "float64"}), Settings()):
        for arch in ("trn2", "trn3"):
            with using(arch, settings) as runs:
                compiled(*operands, 1)
            assert runs[0].arch.name == arch and runs[0].instructions == 6
    assert len(CALLS) == 6


def test_a_tool_may_ask_for_the_kernels_python_each_time(rng, compiled):
    with using(settings=Settings(reuse=False)):
        for _ in range(2):
            compiled(*pair(rng), 1)
    assert len(CALLS) == 2


def test_a_price_only_launch_computes_nothing(rng, compiled):
    operands = pair(rng)
    compiled(*operands, 1)
    with using(settings=Settings(execute=False)):
        assert not compiled(*operands, 1)[0].any()


def test_tensors_of_torch_and_views_of_any_strides(rng, compiled):
    left, right = (torch.from_numpy(each) for each in pair(rng))
    expected = product(left, right, 1)[0]
    for operand in (left, left.T.contiguous().T):
        assert torch.equal(compiled(operand, right, 1)[0], expected)
    assert isinstance(compiled(left, right, 1)[0], torch.Tensor)


def test_results_stay_when_the_program_is_played_again_and_hold_no_memory_of_it(rng, compiled):
    operands = pair(rng)
    compiled(*operands, 1)
    first = compiled(*operands, 1)[0]
    kept = first.copy()
    compiled(*pair(rng), 1)
    np.testing.assert_array_equal(first, kept)
    first[...] = 0
    np.testing.assert_array_equal(compiled(*operands, 1)[0], kept)


def test_arguments_are_let_go_of(rng, compiled):
    class Mine(np.ndarray):
        pass

    operands = [each.view(Mine) for each in pair(rng)]
    gone = [weakref.ref(each) for each in operands]
    compiled(*operands, 1)
    compiled(*operands, 1)
    operands.clear()
    gc.collect()
    assert all(each() is None for each in gone)


@nki.jit
def add_in_place(x, y):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    nisa.dma_copy(dst=x, src=tile)
    nisa.dma_copy(dst=y, src=tile)


def test_what_a_kernel_writes_into_its_arguments_is_given_back(rng):
    kernel = add_in_place.as_operator()
    x, y = rng.standard_normal((4, 4)).astype(np.float32), np.zeros((4, 4), np.float32)
    for power in (2, 4, 8):
        before = x.copy()
        assert kernel(x, y) is None
        np.testing.assert_array_equal(x, 2 * before, err_msg=str(power))
        np.testing.assert_array_equal(y, x)


def counted(body):
    """`body` as a compiled kernel over one [4, 4] array, and a list that gets an entry each time its Python runs."""
    runs = []

    @nki.jit
    def kernel(x):
        runs.append(1)
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        body(x, tile)
        nisa.dma_copy(dst=y, src=tile)
        return y

    return kernel.as_operator(), runs


def registers(x, tile):
    index = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=index, data=tile[0:1, 0:1], op0=nl.multiply, operand0=1.0)
    register = nisa.register_alloc()
    nisa.register_load(register, index)
    nisa.dma_copy(dst=tile[0:1, :], src=x.ap([[4, 1], [1, 4]], scalar_offset=register, indirect_dim=0))


def randoms(x, tile):
    bits = nl.ndarray(tile.shape, dtype=nl.uint32, buffer=nl.sbuf)
    nisa.rng(dst=bits)
    nisa.tensor_scalar(dst=tile, data=bits, op0=nl.multiply, operand0=1.0)


def printed(x, tile):
    nl.device_print("tile", tile)


def shown(x, tile):
    print(tile)


def unwritten(x, tile):
    other = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=other[:, 0:2], src=tile[:, 0:2])
    nisa.tensor_copy(dst=tile[0:4, 0:2], src=other[:, 0:2])
    spare = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=spare, src=other)


def predicated(x, tile):
    other = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
    where = nl.ndarray(tile.shape, dtype=nl.uint8, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=where, data=tile, op0=nl.greater, operand0=0.0)
    nisa.tensor_copy_predicated(dst=other, src=tile, predicate=where)


@pytest.mark.parametrize("body", [registers, printed, shown, unwritten, predicated])
def test_a_run_whose_course_depends_on_values_is_not_kept(body, capsys):
    kernel, runs = counted(body)
    outputs, printed_text = [], []
    for value in (1, 2, 1):
        x = np.full((4, 4), value, np.float32) + np.arange(4, dtype=np.float32)[:, None]
        outputs.append(kernel(x))
        printed_text.append(capsys.readouterr().out)
    assert len(runs) >= 3
    np.testing.assert_array_equal(outputs[0], outputs[2])
    assert printed_text[0] == printed_text[2] and "price-only" not in "".join(printed_text)
    if body in (printed, shown):
        assert printed_text[0] and printed_text[0] != printed_text[1]


def test_random_numbers_start_anew_with_each_launch():
    kernel, runs = counted(randoms)
    x = np.ones((4, 4), np.float32)
    first = kernel(x)
    assert len(np.unique(first)) > 8 and len(runs) == 1
    for _ in range(2):
        np.testing.assert_array_equal(kernel(x), first)
    with using(settings=Settings(seed=1)):
        assert not np.array_equal(kernel(x), first)


def test_a_kernel_runs_each_time_under_a_debugger():
    kernel, runs = counted(lambda x, tile: None)
    before = sys.gettrace()
    sys.settrace(lambda *_: None)
    try:
        for _ in range(2):
            kernel(np.ones((4, 4), np.float32))
    finally:
        sys.settrace(before)
    assert len(runs) == 2


def test_a_breakpoint_stops_where_there_are_values(monkeypatch):
    seen = []
    monkeypatch.setattr("sys.breakpointhook", lambda: seen.append(1))
    kernel, runs = counted(lambda x, tile: breakpoint())
    kernel(np.ones((4, 4), np.float32))
    assert len(seen) == 1 and len(runs) == 2


def test_an_error_is_that_of_the_kernel_itself_each_time():
    kernel, runs = counted(lambda x, tile: nisa.tensor_copy(dst=tile, src=tile[:, 0:2]))
    for _ in range(2):
        with pytest.raises(KernelError, match="operand-extent") as caught:
            kernel(np.ones((4, 4), np.float32))
        assert caught.value.where.startswith("test_programs.py")
    assert len(runs) == 3
    with pytest.raises(UsageError):
        kernel(np.ones((4, 4), np.float32), 1)


def test_a_value_that_may_change_behind_its_identity_is_not_kept(rng):
    runs = []

    @nki.jit
    def scaled(x, by):
        runs.append(1)
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=by.factor)
        nisa.dma_copy(dst=y, src=tile)
        return y

    class By:
        factor = 2.0

    kernel, by, x = scaled.as_operator(), By(), np.ones((4, 4), np.float32)
    assert kernel(x, by)[0, 0] == 2
    by.factor = 3.0
    assert kernel(x, by)[0, 0] == 3


def test_long_programs_are_dropped_for_new_ones(rng, compiled, monkeypatch):
    monkeypatch.setattr(programs, "MAX_STEPS", 40)
    for times in (1, 2, 3, 4, 3, 2):
        compiled(*pair(rng), times)
    assert 1 <= sum(len(each) for each in compiled.programs._kept.values()) <= 40


def test_kinds_that_are_no_program_are_forgotten_too(rng, compiled, monkeypatch):
    monkeypatch.setattr(programs, "MAX_KINDS", 3)
    for times in range(1, 8):
        compiled(*pair(rng), times)
    assert len(compiled.programs._kept) == 3


def test_two_threads_play_one_program(rng, compiled):
    compiled(*pair(rng), 3)
    wrong, calls = [], [pair(rng) for _ in range(8)]
    expected = [product(*call, 3)[0] for call in calls]

    def play(mine):
        for _ in range(20):
            for index in mine:
                if not np.array_equal(compiled(*calls[index], 3)[0], expected[index]):
                    wrong.append(index)

    threads = [threading.Thread(target=play, args=(range(first, 8, 2),)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_two_cores_are_not_kept_and_work(rng):
    x = rng.standard_normal((4, 4)).astype(np.float32)
    with using(settings=Settings(lnc=2)):
        kernel, runs = counted(lambda x, tile: None)
        with pytest.warns():
            kernel(x)
        with pytest.warns():
            np.testing.assert_array_equal(kernel(x), x)
    assert len(runs) == 4
