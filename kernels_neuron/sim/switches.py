"""Behaviour that no document states: one named switch each, with its default and the reason for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from kernels_neuron.errors import UsageError


@dataclass(frozen=True)
class Switch:
    """One undocumented choice: the value used unless told otherwise, the values allowed, and why."""

    default: object
    choices: tuple[object, ...]
    reason: str


SWITCHES: dict[str, Switch] = {
    "unwritten_read": Switch(
        "track",
        ("track", "refuse"),
        "the device reads whatever is there, and public kernels copy unwritten lanes of ragged tiles they never use: "
        "track refuses when a result, an address or a register depends on one, refuse at the first read",
    ),
    "matmul_sum": Switch(
        "float32",
        ("float32", "float64"),
        "float32 sums as BLAS does and depends on its blocking; float64 rounds once, whatever the shape and threads",
    ),
    "fp8_overflow": Switch(
        "format",
        ("format", "saturate"),
        "the only hint in the docs is that FP32_MIN becomes -INF in FP8, so a value beyond the range becomes inf "
        "(NaN for e4m3fn, which has no inf)",
    ),
    "accumulated_value": Switch(
        "float32",
        ("float32", "rounded"),
        "no document says whether a reducing instruction accumulates its float32 result or dst as it was rounded",
    ),
    "nan_in_maximum": Switch(
        "propagate", ("propagate",), "max and min with NaN are not documented; a NaN that vanishes would hide a mistake"
    ),
    "output_buffer": Switch(
        "shared_hbm",
        ("shared_hbm", "hbm"),
        "the migration guide says that outputs must be in shared_hbm from 0.3 on, and tutorials that were measured on "
        "a device return nl.hbm",
    ),
    "platform_target": Switch(
        "match",
        ("match", "refuse"),
        "the migration guide says that nki.jit refuses platform_target since 0.3, and public kernels pass it: match "
        "takes it where it names the chip of the run",
    ),
    "logical_of_values": Switch(
        "nonzero", ("nonzero",), "logical operators are described for 0 and 1 alone; everything but 0 counts as true"
    ),
    "shift_beyond_width": Switch(
        "zero", ("zero",), "a shift by the width or more is not documented; all bits leave the word"
    ),
    "bn_stats_empty_half": Switch(
        "zeros", ("zeros",), "bn_stats of one element has no odd half, and count 0 makes bn_aggr ignore the rest"
    ),
    "nan_to_int": Switch(
        0, (0,), "round and saturate is documented, NaN is not; 0 is what the x86 and ARM saturating casts give"
    ),
    "psum_accumulate_reset": Switch(
        "allocation",
        ("allocation",),
        "accumulate=None starts a group at the first matmul into a region of a new nl.ndarray; "
        "no document says that a read ends it",
    ),
    "ap_view_offset": Switch(
        "view",
        ("view", "storage", "refuse"),
        "two documents disagree on whether .ap(offset=) on a view with an offset counts from the view or from the "
        "storage; a public MLP kernel adds its bias to the right half of a tile only if it counts from the view",
    ),
    "topk_ties": Switch(
        "earliest_lowest",
        ("earliest_lowest",),
        "which of equal values topk keeps is not documented; the sort is stable, so a later one counts as larger",
    ),
    "random_bits": Switch(
        "xorwow",
        ("xorwow",),
        "no bit stream, seed expansion or lane mapping is documented; trn3 is said to run xorwow on VectorE, so one "
        "generator per lane runs it on every engine",
    ),
    "mx_scale_of_inf": Switch(
        "largest", ("largest",), "the scale of a group with inf or NaN is not documented; the largest there is"
    ),
    "rms_norm_epsilon": Switch(
        "inside", ("inside", "outside"), "whether nl.rms_norm adds epsilon inside the root is not documented"
    ),
    "raw_dge_mode": Switch(
        "accept",
        ("accept", "refuse"),
        "the migration guide says that integers are refused in place of enumerations, and public kernels pass 3",
    ),
    "barrier_orders": Switch(
        "data",
        ("data", "everything"),
        "core_barrier names one tensor, so accesses to the others are taken to have no order around it",
    ),
    "sendrecv_orders": Switch(
        "everything",
        ("everything", "nothing"),
        "no document says whether an exchange orders the HBM accesses around it; a public MoE kernel stores, with "
        "nothing else between, to rows that the other core cleared before",
    ),
    "sbuf_overflow": Switch(
        "refuse",
        ("refuse", "spill"),
        "the vendor's guide says that its compiler spills to HBM what is live and does not fit in SBUF; a "
        "spill is slow and shows nowhere in the source, so refuse; spill computes as if all fitted, with no estimate",
    ),
    "slice_beyond_end": Switch("refuse", ("refuse",), "samples clamp with min(), so a slice past the end is a mistake"),
    "tf32_rounding": Switch("nearest_even", ("nearest_even",), "every documented cast rounds to nearest even"),
}


def resolve(overrides: Mapping[str, object]) -> dict[str, object]:
    """All switches with `overrides` applied; an unknown name or value is refused."""
    for name, value in overrides.items():
        if name not in SWITCHES:
            near = get_close_matches(name, SWITCHES, n=1)
            raise UsageError(
                f"no simulator switch is called {name!r}",
                hint=f"did you mean {near[0]!r}" if near else f"use one of {', '.join(SWITCHES)}",
            )
        if value not in SWITCHES[name].choices:
            raise UsageError(f"switch {name} takes {' or '.join(map(repr, SWITCHES[name].choices))}, got {value!r}")
    return {name: overrides.get(name, switch.default) for name, switch in SWITCHES.items()}
