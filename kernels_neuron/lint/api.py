"""The NKI API by version: which names and arguments there are, since when, and what replaced those that are gone.

Names are short ones: "nl.load", "nisa.dma_copy", "ncc.all_gather", "nki.simulate". The list of names, their signatures
and versions are the simulator's. Source: NKI release notes 0.1 to 0.7 and the migration guide, unless a line says more.
"""

import enum
import inspect
from collections.abc import Iterator

from kernels_neuron.arch import TRN3
from kernels_neuron.sim import versions
from kernels_neuron.sim.isa import COLLECTIVES, TABLE
from kernels_neuron.sim.shim import collectives, composite, elementwise, gone, isa, language, nki
from kernels_neuron.sim.shim.finder import _MODULES
from kernels_neuron.sim.tensor import NkiTensor

from .target import BETA, Version, parse_version, spell

_SHIMS = {"nl": language, "nisa": isa, "ncc": collectives, "nki": nki}
MODULES = frozenset(_MODULES)

# nl.load and the like: in the Beta, not in 0.1 and 0.2, back since 0.3 as experimental
_CONVENIENCE = (*elementwise.FUNCTIONS, *composite.COMPOSITES, "broadcast_to", "expand_dims", "full", "load", "matmul",
                "ones", "store", "transpose", "zeros", "rand", "random_seed")  # fmt: skip

_SINCE = {**dict.fromkeys((f"nl.{name}" for name in _CONVENIENCE if hasattr(language, name)), (0, 3)), **versions.SINCE}

# name -> (version it is gone in, what to use)
RETIRED: dict[str, tuple[Version, str]] = {
    **{
        f"{module}.{name}": (parse_version(since), instead)
        for module, table in (("nki", gone.NKI), ("nl", gone.LANGUAGE), ("nisa", gone.ISA))
        for name, (since, instead) in table.items()
    },
    "nl.bfp16": ((0, 1), "use nl.bfloat16"),
    "nl.dynamic_range": ((0, 7), "use nl.fori_loop(lower, upper, body)"),
    "nki.nki_jit": ((0, 1), "use nki.jit"),
    "nki.compiler.enable_stack_allocator": ((0, 1), "use nl.ndarray(.., address=(partition, byte))"),
    "nki.compiler.force_auto_alloc": ((0, 1), "leave address= out"),
    "nki.compiler.psum": ((0, 1), "use nl.ndarray(.., buffer=nl.psum, address=(partition, byte))"),
    "nki.compiler.sbuf": ((0, 1), "use nl.ndarray(.., buffer=nl.sbuf, address=(partition, byte))"),
    "nki.kernels": ((0, 1), "the vendor's kernels moved to a library of their own, nkilib"),
    "nki.tensor": ((0, 2), "it is called nki.meta.tensor"),
}

# name -> (version it is deprecated in, what to use)
DEPRECATED: dict[str, tuple[Version, str]] = {
    "nl.affine_range": ((0, 6), "use range"),
    "nl.sequential_range": ((0, 6), "use range"),
    "nl.static_range": ((0, 6), "use range"),
    "nl.dynamic_range": ((0, 6), "use nl.fori_loop(lower, upper, body)"),
    "nl.tile_size.psum_fmax": ((0, 4), "use nl.tile_size.psum_bank_fmax"),
    "nl.tile_size.total_available_sbuf_size": ((0, 4), "use nl.tile_size.sbuf_fmax_bytes"),
    **{
        f"nisa.{name}_engine": ((0, 3), f"use nisa.engine.{name}")
        for name in ("gpsimd", "scalar", "tensor", "unknown", "vector")
    },
}

# (call, argument) -> (version it is gone in, what to use); "*" is every call of nl, nisa and ncc
ARGUMENTS_RETIRED: dict[tuple[str, str], tuple[Version, str]] = {
    **{
        (f"nisa.{call}", argument): ((0, 2) if call == "nc_matmul" else (0, 3), instead)
        for (call, argument), instead in gone.ARGUMENTS.items()
    },
    ("*", "mask"): ((0, 1), "take shorter slices at the edge: x[start : min(start + size, end)]"),
    ("nisa.*", "dtype"): ((0, 1), "the dtype of dst decides"),
    ("nl.affine_range", "directives"): ((0, 1), "leave it out"),
    ("nl.affine_range", "precise_schedule"): ((0, 1), "leave it out"),
    ("nl.sequential_range", "directives"): ((0, 1), "leave it out"),
    ("ncc.*", "num_channels"): ((0, 3), "use channel_ids on the permute"),
    ("nki.jit", "platform_target"): ((0, 3), "set NEURON_PLATFORM_TARGET_OVERRIDE"),
}


def exists(name: str) -> bool:
    """Whether any version from 0.1 on has the name; what lies behind a function or a dtype is not looked at."""
    module, *path = name.split(".")
    found: object = _SHIMS[module]
    if path and path[0] not in _SHIMS[module].__all__:
        return False
    for part in path:
        if isinstance(found, type(language.tile_size)):
            return part in TRN3.tile_size
        if not (inspect.ismodule(found) or (isinstance(found, type) and issubclass(found, enum.Enum))):
            return True
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


def names(module: str) -> list[str]:
    """The public names of "nl", "nisa", "ncc" or "nki"."""
    return list(_SHIMS[module].__all__)


def signature(name: str) -> inspect.Signature | None:
    """The signature of a function of nl, nisa or ncc in NKI 0.7; None where it takes anything or is no function."""
    module, _, function = name.partition(".")
    if module == "nisa" and function in TABLE:
        return TABLE[function].signature
    if module == "ncc" and function in COLLECTIVES:
        return COLLECTIVES[function].signature
    found = getattr(_SHIMS[module], function, None)
    if module != "nl" or not inspect.isfunction(found):
        return None
    signature = inspect.signature(found)
    return None if any(each.kind is each.VAR_POSITIONAL for each in signature.parameters.values()) else signature


def retired_argument(call: str, argument: str) -> tuple[Version, str] | None:
    """(version it is gone in, what to use) of an argument that `call` once had."""
    module = call.partition(".")[0]
    for key in ((call, argument), (f"{module}.*", argument), ("*", argument)):
        if key in ARGUMENTS_RETIRED and (key[0] != "*" or module != "nki"):
            return ARGUMENTS_RETIRED[key]
    return None


def is_method(name: str) -> bool:
    """Whether tensors have a method of this name."""
    return callable(getattr(NkiTensor, name, None))


def too_new(name: str, version: Version) -> str | None:
    """The version that brought a name `version` does not have yet, else None."""
    parts = name.split(".")
    for length in range(2, len(parts) + 1):
        since = _SINCE.get(".".join(parts[:length]))
        if since and BETA < version < since:
            return spell(since)
    return None


def retired(
    name: str, version: Version, table: dict[str, tuple[Version, str]] = RETIRED
) -> Iterator[tuple[str, str, str]]:
    """(name or the part of it, version, what to use) where `version` no longer has it, or deprecates it."""
    parts = name.split(".")
    for length in range(2, len(parts) + 1):
        part = ".".join(parts[:length])
        if part in table and version >= table[part][0]:
            yield part, spell(table[part][0]), table[part][1]
            return
