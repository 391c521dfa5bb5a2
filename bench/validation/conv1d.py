"""A depthwise convolution along W, one output column at a time: a product of three taps and their sum.

The steps of the published ladder differ in where images, taps and results are kept, not in this inner work. Columns are
issued eight in turn, as compilers do, so that no sum waits for the product just before it.
"""

import nki
import nki.isa as nisa
import nki.language as nl

PARTITIONS = 128
BANK = 512  # float32 columns of a PSUM bank
TURN = 8  # columns whose products are made before their sums


@nki.jit
def prefetched(x, taps, together=8):
    """y[n, c, w] = sum over f of x[n, c, w + f] * taps[c, f]: images in SBUF first, their results stored last.

    The published kernel has all images and results in SBUF, which they do not fit; here it is `together` of them.
    """
    batch, channels, width = x.shape
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weights = {c: _taps(taps, c) for c in range(0, channels, PARTITIONS)}
    turns = [(n, c) for n in range(batch) for c in range(0, channels, PARTITIONS)]
    for first in range(0, len(turns), together):
        part = turns[first : first + together]
        rows = [_image(x, *turn, taps.shape[1]) for turn in part]
        results = [_sbuf(width, x.dtype) for _ in part]
        for (_, c), row, out in zip(part, rows, results, strict=True):
            _columns(row, weights[c], out, range(width))
        for (n, c), out in zip(part, results, strict=True):
            nisa.dma_copy(dst=y[n, c : c + PARTITIONS], src=out)
    return y


@nki.jit
def by_column(x, taps, taps_in="sbuf"):
    """The same with the tiles of one image and 128 channels at a time, the taps in SBUF or PSUM."""
    batch, channels, width = x.shape
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for c in range(0, channels, PARTITIONS):
        weights = _taps(taps, c)
        if taps_in == "psum":
            bank = nl.ndarray(weights.shape, dtype=weights.dtype, buffer=nl.psum)
            nisa.tensor_copy(dst=bank, src=weights)
            weights = bank
        for n in range(batch):
            row, out = _image(x, n, c, taps.shape[1]), _sbuf(width, x.dtype)
            _columns(row, weights, out, range(width))
            nisa.dma_copy(dst=y[n, c : c + PARTITIONS], src=out)
    return y


@nki.jit
def summed_in_psum(x, taps):
    """The same with the results of 512 columns in PSUM, where each sum is added."""
    batch, channels, width = x.shape
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for n in range(batch):
        for c in range(0, channels, PARTITIONS):
            row, weights = _image(x, n, c, taps.shape[1]), _taps(taps, c)
            for first in range(0, width, BANK):
                bank, out = nl.ndarray((PARTITIONS, BANK), dtype=x.dtype, buffer=nl.psum), _sbuf(BANK, x.dtype)
                nisa.memset(dst=bank, value=0.0)
                sums = _sbuf(BANK, x.dtype)
                for w in range(0, BANK, TURN):
                    _columns(row[:, first:], weights, sums, range(w, w + TURN))
                    for column in (slice(each, each + 1) for each in range(w, w + TURN)):
                        nisa.tensor_tensor(dst=bank[:, column], data1=bank[:, column], data2=sums[:, column], op=nl.add)
                nisa.tensor_copy(dst=out, src=bank)
                nisa.dma_copy(dst=y[n, c : c + PARTITIONS, first : first + BANK], src=out)
    return y


def _columns(row, weights, out, columns):
    reach = weights.shape[1]
    for first in range(columns.start, columns.stop, TURN):
        products = [_sbuf(reach, row.dtype) for _ in range(TURN)]
        for w, product in enumerate(products, first):
            nisa.tensor_tensor(dst=product, data1=row[:, w : w + reach], data2=weights, op=nl.multiply)
        for w, product in enumerate(products, first):
            nisa.tensor_reduce(dst=out[:, w : w + 1], op=nl.add, data=product, axis=1)


def _image(x, n, c, reach):
    """One row of 128 channels, and zeros where the last columns have no taps."""
    width = x.shape[2]
    row = _sbuf(width + reach - 1, x.dtype)
    nisa.memset(dst=row[:, width:], value=0.0)
    nisa.dma_copy(dst=row[:, :width], src=x[n, c : c + PARTITIONS])
    return row


def _taps(taps, c):
    weights = _sbuf(taps.shape[1], taps.dtype)
    nisa.dma_copy(dst=weights, src=taps[c : c + PARTITIONS])
    return weights


def _sbuf(width, dtype):
    return nl.ndarray((PARTITIONS, width), dtype=dtype, buffer=nl.sbuf)
