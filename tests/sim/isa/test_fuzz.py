"""Calls with one or two arguments replaced by anything: they run, or end in an error of the rule table, early."""

import functools
import inspect

import numpy as np
import pytest
from calls import ARCH, LEGAL
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from test_table import rules

from kernels_neuron.dtypes import ROWS
from kernels_neuron.errors import KernelError
from kernels_neuron.sim.isa import TABLE
from kernels_neuron.sim.isa import enums as nisa
from kernels_neuron.sim.isa.ops import OPS
from kernels_neuron.sim.register import VirtualRegister
from kernels_neuron.sim.tensor import NkiTensor

SHAPES = [
    (1, 1),
    (128, 1),
    (16, 16),
    (32, 8),
    (128, 16),
    (128, 15),
    (128, 2, 8),
    (128, 2, 2, 4),
    (64, 8),
    (1, 600),
    (2, 5),
]
VIEWS = [
    lambda tile: tile,
    lambda tile: tile[: max(1, tile.shape[0] // 2)],
    lambda tile: tile[tile.shape[0] // 2 :],
    lambda tile: tile[::2],
    lambda tile: tile[:, ::2],
    lambda tile: tile[1:] if tile.shape[0] > 1 else tile,
    lambda tile: tile[:, :1].broadcast(1, 16) if tile.ndim == 2 else tile.permute((0, *range(tile.ndim - 1, 0, -1))),
]
VALUES = [None, 0, 1, -1, 3, 2**40, 1.5, float("nan"), True, "x", b"", (), [], [[1, 16]], [0] * 32, {}, object, (0, 0)]
ENUMS = [
    member for kind in vars(nisa).values() if inspect.isclass(kind) and hasattr(kind, "__members__") for member in kind
]


@st.composite
def tiles(draw):
    """A maker of a tile or view of any dtype in any memory, written or not, with random bytes."""
    shape, dtype = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(sorted(ROWS)))
    buffer, view = draw(st.sampled_from(["sbuf", "sbuf", "psum", "shared_hbm"])), draw(st.sampled_from(VIEWS))
    start, written = draw(st.sampled_from([0, 0, 16, 32])), draw(st.integers(0, 9)) > 0

    def make(bench):
        tile = bench.empty(shape, dtype, buffer, start if shape[0] + start <= 128 and buffer != "shared_hbm" else 0)
        data = tile.storage.table()
        data[...] = np.random.default_rng(0).integers(0, 2 if dtype == "bool_" else 256, data.shape, np.uint8)
        if written:
            tile.storage.written.add(tile.region())
        return view(tile)

    return make


ANYTHING = st.one_of(
    tiles(),
    tiles().map(lambda make: lambda bench: [make(bench)] * 2),
    st.sampled_from(VALUES).map(lambda value: lambda bench: value),
    st.sampled_from(sorted(OPS)).map(lambda name: lambda bench: OPS[name]),
    st.sampled_from(ENUMS).map(lambda member: lambda bench: member),
    st.sampled_from([None, 0, 7, -3]).map(lambda state: lambda bench: VirtualRegister(state)),
)


@functools.cache
def known():
    return {*rules()} | {"not-simulated"}


def bytes_of(arguments):
    found = [value for value in arguments.values() if isinstance(value, NkiTensor)]
    return [tile.storage.table().copy() for tile in found]


@pytest.mark.parametrize("name", LEGAL)
def test_any_call_runs_or_breaks_a_rule_before_it_has_any_effect(machine, name):
    parameters = [parameter for parameter in TABLE[name].signature.parameters if parameter != "name"]

    @settings(
        max_examples=20,
        deadline=None,
        derandomize=True,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.dictionaries(st.sampled_from(parameters), ANYTHING, min_size=1, max_size=2),
        st.sampled_from(["", "trn1", "trn3"]),
    )
    def check(changes, arch):
        bench = machine(arch or ARCH.get(name, "trn2"), switches={"unwritten_read": "track"})
        arguments = LEGAL[name](bench) | {key: make(bench) for key, make in changes.items()}
        before, records = bytes_of(arguments), len(bench.core.trace.records)
        try:
            bench.issue(name, **arguments)
        except KernelError as error:
            assert error.rule in known(), error.rule
            assert len(bench.core.trace.records) == records
            for old, new in zip(before, bytes_of(arguments), strict=True):
                np.testing.assert_array_equal(old, new)

    check()
