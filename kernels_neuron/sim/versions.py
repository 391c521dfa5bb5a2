"""What NKI versions differ in: when names, arguments and tensor methods came, and what they had to be given before.

The one table of it: simulator and linter read it. Names are short ones, "nl.load", "nisa.dma_copy", "ncc.all_gather".
Source: the API reference of each version, and the release notes.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from kernels_neuron.errors import KernelError, NewerName

from .context import core_or_none
from .locate import fail, is_ours

if TYPE_CHECKING:
    from .core import NeuronCore

Version = tuple[int, ...]
OLDEST: Version = (0, 3)  # the oldest version that a run can be set to

_NAMES: dict[Version, tuple[str, ...]] = {
    (0, 2): ("nisa.nonzero_with_count", "nl.float8_e4m3fn", "nl.no_reorder"),
    (0, 3): ("nki.simulate", "nisa.dma_engine", "nisa.exponential", "ncc.all_to_all_v"),
    (0, 4): (
        "nisa.activate2", "nl.abs_max", "nl.abs_min", "nl.bypass", "nl.prelu", "nl.tile_size.psum_bank_fmax",
        "nl.tile_size.psum_bank_fmax_bytes", "nl.tile_size.sbuf_fmax", "nl.tile_size.sbuf_fmax_bytes",
        "nl.tile_size.sbuf_size_bytes",
    ),
    (0, 5): ("nl.float8_e8m0fnu", "nl.tile_size.psum_num_banks"),
    (0, 6): ("nisa.topk", "ncc.all_gather_v", "nl.fori_loop", "nl.while_loop"),
    (0, 7): (
        "nisa.NkiScalar", "nisa.scalar_load", "nisa.scalar_store", "ncc.all_gather_v_prepare",
        "ncc.all_gather_v_trigger", "ncc.all_to_all_v_prepare", "ncc.all_to_all_v_trigger", "nl.NkiBlockGrid",
        "nl.NkiGrid", "nl.NkiTileGrid", "nl.alloc_blocks", "nl.alloc_tiles", "nl.blocks", "nl.int64", "nl.tiles",
    ),
}  # fmt: skip
SINCE: dict[str, Version] = {name: since for since, names in _NAMES.items() for name in names}

# methods of tensors
METHODS: dict[str, Version] = {
    "view": (0, 2),
    **dict.fromkeys(
        ("slice", "select", "permute", "broadcast", "expand_dim", "squeeze_dim", "reshape_dim", "flatten_dims",
         "rearrange", "vector_select", "indirect", "is_contiguous", "is_indirect"),
        (0, 5),
    ),
}  # fmt: skip

# operators that became ALU operations
ALU_OPERATORS: dict[str, Version] = dict.fromkeys(("abs_max", "abs_min", "relu", "square"), (0, 4))

_OF_COLLECTIVES: dict[str, Version] = {"priority": (0, 4), "name": (0, 5)}
# arguments that came later than their call; before, what stands behind them moves up
ARGUMENTS: dict[str, dict[str, Version]] = {
    "nisa.activate2": {"engine": (0, 7)},
    "nisa.activation": {"engine": (0, 7)},
    "nisa.dma_compute": {"oob_mode": (0, 4)},
    "nisa.dma_copy": {"priority": (0, 4)},
    "nisa.dma_transpose": {"priority": (0, 4)},
    "nisa.nc_matmul": {"accumulate": (0, 3)},
    "nisa.tensor_scalar_reduce": {"reduce_cmd": (0, 4), "reduce_init": (0, 4), "reduce_res_negate": (0, 6)},
    "nl.empty_like": {"transpose_axes": (0, 7), "address": (0, 7)},
    "nl.ndarray": {"address": (0, 3)},
    **dict.fromkeys(
        (
            "ncc.all_gather",
            "ncc.all_reduce",
            "ncc.all_to_all",
            "ncc.all_to_all_v",
            "ncc.collective_permute",
            "ncc.collective_permute_implicit",
            "ncc.collective_permute_implicit_reduce",
            "ncc.reduce_scatter",
        ),
        _OF_COLLECTIVES,
    ),
}
# arguments that had no default before
DEFAULTS: dict[str, dict[str, Version]] = {"nisa.tensor_scalar_reduce": {"reduce_res": (0, 6)}}


def spell(version: Version) -> str:
    """ "0.7" of (0, 7)."""
    return ".".join(map(str, version))


@functools.cache
def api_version(text: str) -> Version:
    """ "0.7" or "0.7.0" as numbers that compare."""
    return tuple(int(part) for part in text.split(".")[:2])


# ---- calls


def since(call: str) -> Version | None:
    """The version that brought a call; None where every version that a run can be set to has it."""
    found = SINCE.get(call, OLDEST)
    return found if found > OLDEST else None


def newest(call: str) -> Version | None:
    """The version from which on the signature of a call is today's; None where a run cannot be set to an older one."""
    found = max([OLDEST, *ARGUMENTS.get(call, {}).values(), *DEFAULTS.get(call, {}).values()])
    return found if found > OLDEST else None


@functools.cache
def signature_in(call: str, version: Version, signature: inspect.Signature) -> inspect.Signature:
    """The signature that a call had in an older version."""
    later = {argument for argument, since in ARGUMENTS.get(call, {}).items() if version < since}
    needed = {argument for argument, since in DEFAULTS.get(call, {}).items() if version < since}
    return signature.replace(
        parameters=[
            parameter.replace(default=parameter.empty) if parameter.name in needed else parameter
            for parameter in signature.parameters.values()
            if parameter.name not in later
        ]
    )


# ---- what a run refuses


def require_version(core: NeuronCore, what: str, since: Version) -> None:
    """The kernel is written for an NKI that has `what`."""
    if api_version(core.settings.nki) < since:
        _refuse(core, what, since, KernelError)


def require_name(name: str) -> None:
    """The run, if there is one, is set to an NKI that has a name of SINCE."""
    core = core_or_none()
    if core is not None and api_version(core.settings.nki) < SINCE[name]:
        _refuse(core, name, SINCE[name], NewerName)


def later_names(module: str) -> frozenset[str]:
    """The names of a module, "nl" or the like, that not every version a run can be set to has."""
    names = (name.removeprefix(f"{module}.") for name in SINCE if name.startswith(f"{module}.") and since(name))
    return frozenset(name for name in names if "." not in name)


Class = TypeVar("Class", bound=type)


def refusing_newer_methods(cls: Class) -> Class:
    """The tensor class, with methods that refuse a kernel whose NKI does not have them yet."""
    for name, first in METHODS.items():
        if first > OLDEST:
            setattr(cls, name, _of_its_version(vars(cls)[name], first))
    return cls


def _of_its_version(method: Any, first: Version) -> Any:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        core = core_or_none()
        # the simulator itself makes views by these methods, whatever the version
        if core is not None and api_version(core.settings.nki) < first and not is_ours(sys._getframe(1)):
            _refuse(core, f"the tensor method .{method.__name__}", first, NewerName)
        return method(*args, **kwargs)

    return call


def _refuse(core: NeuronCore, what: str, since: Version, kind: type[KernelError]) -> NoReturn:
    fail(
        "api-version",
        f"{what} exists from NKI {spell(since)} on, the run is set to {core.settings.nki}",
        f'write it with what NKI {core.settings.nki} has, or run it with Settings(nki="{spell(since)}")',
        kind=kind,
    )
