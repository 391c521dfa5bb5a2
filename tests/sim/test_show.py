"""What print, nl.device_print, breakpoints and watched tiles show."""

import sys

import numpy as np
import pytest

from kernels_neuron.errors import KernelError
from kernels_neuron.settings import Settings
from kernels_neuron.sim import shim
from kernels_neuron.sim.run import jit, simulate
from kernels_neuron.sim.show import shown

shim.install()
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def copied(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, name="tile")
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=y, src=tile)
    return y


def test_a_tile_shows_its_values_and_what_nothing_has_written(machine):
    bench = machine()
    tile = bench.empty((2, 4), "bfloat16")
    bench.issue("memset", tile[:, :2], 1.5)
    assert shown(tile) == "sbuf bfloat16[2, 4]\n[[1.5 1.5 -- --]\n [1.5 1.5 -- --]]"
    assert str(tile) == shown(tile) and repr(tile) == "sbuf bfloat16[2, 4]"
    assert "..." in shown(bench.tile(np.zeros((128, 512))))


def test_a_price_only_run_has_no_values_to_show(machine):
    assert shown(machine(execute=False).empty((2, 4))) == "sbuf float32[2, 4], no values in a price-only run"


@pytest.mark.parametrize("watch", ["tile", ("tile", "other"), ["tile"]])
def test_a_watched_tile_is_shown_at_each_write(capsys, watch):
    simulate(copied, X, watch=watch)
    assert "dma_copy wrote tile: sbuf float32[2, 4]\n[[0. 1. 2. 3.]" in capsys.readouterr().out


def test_a_tile_is_watched_by_the_place_where_it_is_made(capsys):
    line = copied.__code__.co_firstlineno + 2
    simulate(copied, X, watch=f"test_show.py:{line}")
    assert capsys.readouterr().out.count("wrote tile") == 1


def test_a_name_is_watched_whole_not_by_its_letters(capsys):
    simulate(copied, X, settings=Settings(watch="tiles and more"))
    assert capsys.readouterr().out == ""


def test_an_argument_is_watched_by_its_name(capsys):
    def overwritten(x, into):
        nisa.dma_copy(dst=into, src=x)
        return into

    simulate(overwritten, X, np.zeros_like(X), watch="into")
    assert "test_show.py" in (out := capsys.readouterr().out) and "wrote into: private_hbm float32[2, 4]" in out


@pytest.mark.parametrize("cores", [1, 2])
def test_breakpoint_stops_inside_the_kernel_with_its_tiles(monkeypatch, cores):
    seen = []

    def kernel(x):
        tile = nl.load(x)
        breakpoint()
        return x if tile is not None else None

    monkeypatch.setattr(sys, "breakpointhook", lambda: seen.append(sys._getframe(1).f_locals["tile"].array().copy()))
    simulate(jit(kernel)[cores], X)
    assert len(seen) == cores
    np.testing.assert_array_equal(seen[0], X)


def test_print_and_device_print_work_in_a_kernel(capsys):
    def kernel(x):
        tile = nl.load(x)
        print(tile, nisa.register_alloc(7))
        nl.device_print("mine", tile)
        return x

    simulate(kernel, X)
    out = capsys.readouterr().out
    assert out.count("[4. 5. 6. 7.]") == 2 and "a register holding 7" in out and "mine sbuf float32[2, 4]" in out


def test_an_error_has_the_kernels_line_with_the_tile():
    def kernel(x):
        tile = nl.load(x)
        nisa.tensor_copy(dst=tile, src=x)  # the line that is shown
        return x

    with pytest.raises(KernelError, match=r"takes src in SBUF or PSUM, got x: private_hbm float32\[2, 4\]") as caught:
        simulate(kernel, X)
    assert caught.value.source == "nisa.tensor_copy(dst=tile, src=x)  # the line that is shown"
    assert "".join(caught.value.__notes__) == f"\n    {caught.value.source}\nrule: operand-buffer"


def test_an_error_found_after_the_run_has_the_line_of_the_tile():
    def kernel(x):
        return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

    with pytest.raises(KernelError) as caught:
        simulate(kernel, X)
    assert caught.value.source.startswith("return nl.ndarray(")
