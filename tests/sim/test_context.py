import numpy as np
import pytest

from kernels_neuron.errors import KernelError, UsageError
from kernels_neuron.settings import Settings
from kernels_neuron.sim import shim
from kernels_neuron.sim.context import current_arch, using
from kernels_neuron.sim.switches import SWITCHES, resolve

shim.install()
import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

X = np.ones((4, 4), np.float32)


@nki.jit
def copy(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_using_collects_every_run_with_its_chip():
    with using(arch="trn3") as runs:
        copy(X)
        copy(X)
    assert [(run.kernel, run.arch.name, run.instructions) for run in runs] == [("copy", "trn3", 2)] * 2


def test_scopes_nest_and_the_outer_one_comes_back():
    with using(arch="trn1") as outer:
        with using(arch="trn3") as inner:
            copy(X)
        copy(X)
        assert current_arch().name == "trn1"
    assert [run.arch.name for run in inner] == ["trn3"]
    assert [run.arch.name for run in outer] == ["trn1"]


def test_a_scope_ends_with_an_error_too():
    with pytest.raises(ZeroDivisionError), using(arch="trn1"):
        raise ZeroDivisionError
    assert current_arch().name == "trn2"


def test_the_environment_names_the_chip_outside_a_scope(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    assert nisa.get_nc_version() is nisa.nc_version.gen4
    with using(arch="trn1"):
        assert nisa.get_nc_version() is nisa.nc_version.gen2


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("nki.isa.memset", lambda: nisa.memset(None, 0)),
        ("nl.ndarray", lambda: nl.ndarray((1, 1), dtype=nl.float32)),
        ("nl.program_id", lambda: nl.program_id()),
    ],
)
def test_a_call_outside_a_kernel_says_so(name, call):
    with pytest.raises(KernelError, match="outside a running kernel") as caught:
        call()
    assert caught.value.rule == "outside-kernel" and name in str(caught.value)


def test_constants_answer_outside_a_kernel():
    assert nl.tile_size.pmax == 128
    assert nl.tile_size.psum_bank_fmax == 512
    assert nl.float32 == "float32"
    with pytest.raises(AttributeError, match="it has pmax"):
        nl.tile_size.pmin  # noqa: B018


def test_watched_tiles_are_printed_at_each_write(capsys):
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, name="seen")
        nisa.dma_copy(dst=tile, src=x)
        nisa.dma_copy(dst=out, src=tile)
        return out

    with using(settings=Settings(watch=("seen",))):
        nki.jit(kernel)(X)
    assert capsys.readouterr().out.count("dma_copy wrote seen: sbuf float32[4, 4]") == 1


def test_every_switch_has_a_default_among_its_choices_and_a_reason():
    for name, switch in SWITCHES.items():
        assert switch.default in switch.choices and len(switch.reason) > 20, name


def test_an_unknown_switch_or_value_is_refused():
    with pytest.raises(UsageError) as caught:
        resolve({"matmul_summ": "float64"})
    assert "matmul_sum" in str(caught.value.hint)
    with pytest.raises(UsageError, match="'float32' or 'float64'"):
        resolve({"matmul_sum": "float16"})
