"""nki.dtype: the dtypes, which newer versions export from nki.language."""

from kernels_neuron.dtypes import ROWS, DType

globals().update({name: row.name for name, row in ROWS.items()})

__all__ = [*ROWS, "DType"]
