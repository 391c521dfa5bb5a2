"""nki.collectives: exchange between ranks."""

from dataclasses import dataclass
from typing import Any, NoReturn

from kernels_neuron.sim.locate import fail


@dataclass(frozen=True)
class ReplicaGroup:
    """Lists of ranks, none of them in two lists, that exchange data with each other."""

    replica_groups: list[list[int]]


def _refused(name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> NoReturn:
        fail("not-simulated", f"nki.collectives.{name} is not supported by this simulator")

    call.__name__ = name
    return call


NAMES = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "all_gather_v",
    "all_to_all_v",
    "collective_permute",
    "collective_permute_implicit",
    "collective_permute_implicit_reduce",
    "collective_permute_implicit_current_processing_rank_id",
    "rank_id",
)
globals().update({name: _refused(name) for name in NAMES})

__all__ = ["ReplicaGroup", *NAMES]
