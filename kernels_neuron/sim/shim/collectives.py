"""nki.collectives: exchange between ranks."""

from kernels_neuron.sim.isa.ranks import (
    ReplicaGroup,
    collective_permute_implicit_current_processing_rank_id,
    rank_id,
)
from kernels_neuron.sim.isa.table import COLLECTIVES, public

globals().update({name: public(entry) for name, entry in COLLECTIVES.items()})

__all__ = [
    *COLLECTIVES,
    "ReplicaGroup",
    "collective_permute_implicit_current_processing_rank_id",
    "rank_id",
]
