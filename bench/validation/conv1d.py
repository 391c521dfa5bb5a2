"""A depthwise convolution along W, one output column at a time: a product of three taps and their sum."""

import nki
import nki.isa as nisa
import nki.language as nl

PARTITIONS = 128


@nki.jit
def by_column(x, taps):
    """y[n, c, w] = sum over f of x[n, c, w + f] * taps[c, f], for the columns that have all their taps."""
    batch, channels, width = x.shape
    reach = taps.shape[1]
    y = nl.ndarray((batch, channels, width), dtype=x.dtype, buffer=nl.shared_hbm)
    for c in range(0, channels, PARTITIONS):
        weights = nl.ndarray((PARTITIONS, reach), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=weights, src=taps[c : c + PARTITIONS])
        for n in range(batch):
            row = nl.ndarray((PARTITIONS, width + reach - 1), dtype=x.dtype, buffer=nl.sbuf)
            out = nl.ndarray((PARTITIONS, width), dtype=x.dtype, buffer=nl.sbuf)
            nisa.memset(dst=row[:, width:], value=0.0)
            nisa.dma_copy(dst=row[:, :width], src=x[n, c : c + PARTITIONS])
            products = [nl.ndarray((PARTITIONS, reach), dtype=x.dtype, buffer=nl.sbuf) for _ in range(4)]
            for w in range(width):
                product = products[w % 4]
                nisa.tensor_tensor(dst=product, data1=row[:, w : w + reach], data2=weights, op=nl.multiply)
                nisa.tensor_reduce(dst=out[:, w : w + 1], op=nl.add, data=product, axis=1)
            nisa.dma_copy(dst=y[n, c : c + PARTITIONS], src=out)
    return y
