"""Constants that a kernel carries with it: arrays in HBM, and the identity matrix in SBUF."""

from pathlib import Path
from typing import Any

import numpy as np

from kernels_neuron.dtypes import ROWS, as_array
from kernels_neuron.dtypes import dtype as as_dtype
from kernels_neuron.errors import UsageError
from kernels_neuron.sim.context import current_core
from kernels_neuron.sim.core import NeuronCore, whole
from kernels_neuron.sim.isa import TABLE
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.memory import MemoryRegion
from kernels_neuron.sim.tensor import NkiTensor

# NKI reference, shared_constant; x4 and tfloat32 are said to be untested, float8_e4m3 is not listed
_DTYPES = [
    name
    for name, row in ROWS.items()
    if row.kind in ("float", "int", "uint") and name not in ("tfloat32", "float8_e4m3")
]


def shared_constant(constant: Any) -> NkiTensor:
    """A tensor in shared HBM with the values of an array, or of a .npy file; both cores read the same one."""
    if isinstance(constant, (str, Path)):
        try:
            constant = np.load(constant, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise UsageError(f"nl.shared_constant cannot read {constant}: {error}") from None
    array = constant if isinstance(constant, np.ndarray) else as_array(constant)
    return _constant(current_core("nl.shared_constant"), array)


def _constant(core: NeuronCore, array: np.ndarray) -> NkiTensor:
    if array.dtype == np.int64 and np.array_equal(array.astype(np.int32), array):
        array = array.astype(np.int32)
    dtype = as_dtype(array.dtype)
    if dtype not in _DTYPES:
        fail("constant-dtype", f"nl.shared_constant takes {', '.join(_DTYPES)}, got {dtype}")
    return whole(core.bind_input(np.array(array, order="C", copy=True), dtype, "constant"))


def shared_identity_matrix(n: int, dtype: Any = "uint8", dst: NkiTensor | None = None) -> NkiTensor:
    """The identity matrix [n, n] in SBUF, loaded once per dtype and size; into `dst` where one is given."""
    core = current_core("nl.shared_identity_matrix")
    kind = as_dtype(dtype)
    if not isinstance(n, (int, np.integer)) or not 1 <= n <= core.arch.partitions:
        fail("partition-limit", f"nl.shared_identity_matrix takes n from 1 to {core.arch.partitions}, got {n!r}")
    known = core.identities.get((int(n), kind))
    if known is not None and dst is None:
        return known
    source = whole(core.bind_input(np.eye(n, dtype=np.float32).astype(kind.numpy), kind, "identity"))
    tile = core.allocate((n, n), kind, MemoryRegion.sbuf) if dst is None else dst
    TABLE["dma_copy"](dst=tile, src=source)
    if dst is None:
        core.identities[int(n), kind] = tile
    return tile
