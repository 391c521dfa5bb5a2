"""The sum of two long vectors, a few elements a time, written from the exercises of a university course.

static  descriptors are made beforehand, as under the compiler option that the published profiles were taken with
"""

import nki
import nki.isa as nisa
import nki.language as nl

PARTITIONS = 128


@nki.jit
def in_chunks(a, b, rows=128, static=False):
    """a + b, `rows` elements a time, one on each partition."""
    y = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for first in range(0, a.shape[0], rows):
        part = slice(first, first + rows)
        left, right, total = (nl.ndarray((rows, 1), dtype=a.dtype, buffer=nl.sbuf) for _ in range(3))
        _copy(left, a[part], static)
        _copy(right, b[part], static)

        nisa.tensor_scalar(dst=total, data=left, op0=nl.add, operand0=right)

        _copy(y[part], total, static)
    return y


@nki.jit
def in_columns(a, b, columns, static=False):
    """a + b as [128, n / 128], `columns` of it a time."""
    shape = (PARTITIONS, a.shape[0] // PARTITIONS)
    y = nl.ndarray(shape, dtype=a.dtype, buffer=nl.shared_hbm)
    a, b = a.reshape(shape), b.reshape(shape)
    for first in range(0, shape[1], columns):
        part = slice(first, first + columns)
        left, right, total = (nl.ndarray((PARTITIONS, columns), dtype=a.dtype, buffer=nl.sbuf) for _ in range(3))
        _copy(left, a[:, part], static)
        _copy(right, b[:, part], static)

        nisa.tensor_tensor(dst=total, data1=left, data2=right, op=nl.add)

        _copy(y[:, part], total, static)
    return y


def _copy(dst, src, static):
    nisa.dma_copy(dst=dst, src=src, dge_mode=nisa.dge_mode.none if static else nisa.dge_mode.unknown)
