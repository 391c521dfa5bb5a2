"""What of an estimate no measurement backs: the parts that documents and assumptions alone price."""

import re
from collections.abc import Sequence

from kernels_neuron.sim.isa.prices import PRICES
from kernels_neuron.sim.trace import Record, Trace

_MEASURED = re.compile(r"\[(trace|read)\]")


def unmeasured_parts(traces: Sequence[Trace]) -> list[str]:
    """Instructions and kinds of transfer without a measurement behind their price, and several cores at once."""
    kinds = {kind for trace in traces for record in trace.records if (kind := _unmeasured(record))}
    return sorted(kinds) + ([f"{len(traces)} cores at once"] if len(traces) > 1 else [])


def _unmeasured(record: Record) -> str:
    """What a record is called where nobody has published how long one takes, else nothing."""
    transfer = record.price.transfer
    if transfer is not None:
        return "DMA transpose" if transfer.rate < 1 else ""
    if record.engine == "gpsimd":
        return f"{record.name} on GpSimdE"
    if record.engine == "tensor":  # all of its passes are in the public traces
        return ""
    formula = PRICES.get(record.name)
    return "" if formula is None or _MEASURED.search(formula.__doc__ or "") else record.name
