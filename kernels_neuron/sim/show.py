"""What a tile holds, as text: for print, nl.device_print and watched tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kernels_neuron.dtypes import ROWS

from .context import core_or_none
from .programs import NeedsValuesError
from .unwritten import written_elements

if TYPE_CHECKING:
    from .tensor import NkiTensor

_SHOWN = 96  # elements; of more, the corners are shown


def shown(tensor: NkiTensor) -> str:
    """The tile's name, memory, dtype and shape, and below its values; `--` where nothing was written."""
    core = core_or_none()
    if core is not None and core.steps is not None:
        raise NeedsValuesError
    if tensor.is_indirect() or not tensor.storage.has_values:
        why = "an address that is known only when it runs" if tensor.is_indirect() else "no values in a price-only run"
        return f"{tensor!r}, {why}"
    values = tensor.array()
    if ROWS[tensor.dtype].is_float:
        values = values.astype(np.float32)
    known = written_elements(tensor)
    with np.printoptions(threshold=_SHOWN, edgeitems=3, precision=5, linewidth=120):
        return f"{tensor!r}\n{values if known is None else np.ma.masked_array(values, ~known)}"
