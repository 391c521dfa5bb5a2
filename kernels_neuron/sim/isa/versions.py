"""What NKI versions from 0.3 on differ in: when calls and arguments came, and what they had to be given before.

Source: the API reference of each version, and the release notes.
"""

import functools
import inspect

Version = tuple[int, ...]

# calls that came after 0.3
SINCE: dict[str, Version] = {
    "activate2": (0, 4),
    "all_gather_v": (0, 6),
    "all_gather_v_prepare": (0, 7),
    "all_gather_v_trigger": (0, 7),
    "all_to_all_v_prepare": (0, 7),
    "all_to_all_v_trigger": (0, 7),
    "topk": (0, 6),
}

_OF_COLLECTIVES: dict[str, Version] = {"priority": (0, 4), "name": (0, 5)}
# arguments that came later than their call; before, what stands behind them moves up
ARGUMENTS: dict[str, dict[str, Version]] = {
    "activate2": {"engine": (0, 7)},
    "activation": {"engine": (0, 7)},
    "dma_compute": {"oob_mode": (0, 4)},
    "dma_copy": {"priority": (0, 4)},
    "dma_transpose": {"priority": (0, 4)},
    "tensor_scalar_reduce": {"reduce_cmd": (0, 4), "reduce_init": (0, 4), "reduce_res_negate": (0, 6)},
    **dict.fromkeys(
        (
            "all_gather",
            "all_reduce",
            "all_to_all",
            "all_to_all_v",
            "collective_permute",
            "collective_permute_implicit",
            "collective_permute_implicit_reduce",
            "reduce_scatter",
        ),
        _OF_COLLECTIVES,
    ),
}
# arguments that had no default before
DEFAULTS: dict[str, dict[str, Version]] = {"tensor_scalar_reduce": {"reduce_res": (0, 6)}}


def newest(name: str) -> Version | None:
    """The version from which on the signature of a call is today's; None where it always was."""
    return max([*ARGUMENTS.get(name, {}).values(), *DEFAULTS.get(name, {}).values()], default=None)


@functools.cache
def signature_in(name: str, version: Version, signature: inspect.Signature) -> inspect.Signature:
    """The signature that a call had in an older version."""
    later = {argument for argument, since in ARGUMENTS.get(name, {}).items() if version < since}
    needed = {argument for argument, since in DEFAULTS.get(name, {}).items() if version < since}
    return signature.replace(
        parameters=[
            parameter.replace(default=parameter.empty) if parameter.name in needed else parameter
            for parameter in signature.parameters.values()
            if parameter.name not in later
        ]
    )
