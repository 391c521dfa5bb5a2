"""Views of views, by any methods with any arguments: what numpy makes of them, or an error of the rule table."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernels_neuron.errors import KernelError
from kernels_neuron.sim.index import Ds
from kernels_neuron.sim.rulebook import RULES

NUMBERS = st.one_of(st.integers(-3, 7), st.integers(0, 3), st.sampled_from([1.5, 2.0, None, "x", 2**40]))
SIZES = st.lists(st.one_of(st.integers(1, 6), st.sampled_from([-1, -1, 0, -2, 1.5])), max_size=4)
SLICES = st.builds(slice, *[st.one_of(st.none(), st.integers(-3, 7))] * 2, st.sampled_from([None, 1, 2, 3, 0, -1]))
INDEX = st.one_of(NUMBERS, SLICES, st.just(Ellipsis), st.builds(Ds, st.integers(-1, 5), st.integers(0, 4)))
NAMES = st.lists(st.one_of(st.sampled_from("abcd"), st.lists(st.sampled_from("abcd"), max_size=3)), max_size=4)
ARGUMENTS = {
    "__getitem__": st.tuples(st.one_of(INDEX, st.lists(INDEX, max_size=5).map(tuple))),
    "slice": st.tuples(NUMBERS, NUMBERS, NUMBERS, st.integers(0, 3)),
    "select": st.tuples(NUMBERS, NUMBERS),
    "permute": st.tuples(st.one_of(st.permutations([0, 1, 2]), st.permutations([0, 1]), st.lists(NUMBERS, max_size=4))),
    "broadcast": st.tuples(NUMBERS, NUMBERS),
    "expand_dim": st.tuples(NUMBERS),
    "squeeze_dim": st.tuples(NUMBERS),
    "reshape_dim": st.tuples(NUMBERS, SIZES),
    "flatten_dims": st.tuples(NUMBERS, NUMBERS),
    "reshape": st.tuples(SIZES),
    "rearrange": st.tuples(NAMES, NAMES, st.dictionaries(st.sampled_from("abcd"), st.integers(-1, 4))),
    "ap": st.tuples(st.lists(st.lists(st.integers(-2, 12), min_size=1, max_size=3), max_size=4), NUMBERS),
}
CALLS = st.lists(
    st.sampled_from(sorted(ARGUMENTS)).flatmap(lambda name: st.tuples(st.just(name), ARGUMENTS[name])), max_size=4
)


def modelled(values, name, args, on_chip):
    """What numpy makes of one view of `values`; None where it has no such view."""
    match name, args:
        case "__getitem__", (key,):
            keys = key if isinstance(key, tuple) else (key,)
            keys = [slice(each.start, each.start + each.size) if isinstance(each, Ds) else each for each in keys]
            dropped = sum(isinstance(each, int) for each in keys)
            least = 2 if on_chip else 1
            if on_chip and keys and isinstance(keys[0], int):
                keys[0], dropped = slice(keys[0], keys[0] + 1 or None), dropped - 1
            result = values[tuple(keys)]
            return result if values.ndim - dropped >= least else None
        case "slice", (dim, start, end, step):
            return values[(slice(None),) * (dim % values.ndim) + (slice(start, end, step),)]
        case "select", (dim, index):
            return np.take(values, index, dim)
        case "permute", (dims,):
            return values.transpose(dims)
        case "broadcast", (dim, size):
            return np.repeat(values, size, dim)
        case "expand_dim", (dim,):
            return np.expand_dims(values, dim)
        case "squeeze_dim", (dim,):
            return np.squeeze(values, dim)
        case "reshape_dim", (dim, shape):
            dim %= values.ndim
            inner = np.empty(values.shape[dim]).reshape(shape).shape
            return values.reshape(*values.shape[:dim], *inner, *values.shape[dim + 1 :])
        case "flatten_dims", (first, last):
            first, last = first % values.ndim, last % values.ndim
            return values.reshape(*values.shape[:first], -1, *values.shape[last + 1 :])
        case "reshape", (shape,):
            return values.reshape(shape)
    return None


@pytest.mark.parametrize("buffer", ["sbuf", "shared_hbm"])
def test_any_chain_of_views_is_what_numpy_makes_or_breaks_a_rule(machine, buffer):
    @settings(
        max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), print_blob=False
    )
    @given(st.sampled_from([(4, 6), (4, 1, 6), (2, 3, 4), (8, 2, 1, 3)]), CALLS)
    def check(shape, calls):
        bench = machine()
        values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        view = bench.tile(values, buffer=buffer)
        with bench.inside():
            for name, args in calls:
                try:
                    view = getattr(view, name)(*args)
                except KernelError as error:
                    assert error.rule in RULES, error.rule
                    return
                if not hasattr(view, "array") or type(view).__name__ != "NkiTensor":
                    return
                assert min(view.shape, default=1) >= 1 and view.ndim >= 1, view
                if view.size > 10**6:  # a dim repeated as often as that is legal, and long
                    return
                values = modelled(values, name, args, buffer == "sbuf")
                if values is None:
                    return
                np.testing.assert_array_equal(view.array(), values)

    check()
