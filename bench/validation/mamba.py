"""The selective scan of Mamba, written from its description: channels on partitions, time along the free axis.

y[c, t] = sum over s of C[s, t] * h[c, s, t],  h[c, s, t] = exp(delta[c, t] A[c, s]) h[c, s, t-1] + delta u B[s, t]

The steps of neighbouring iterations are issued in turn, as the compiler of the published kernels did, so that no
VectorE instruction waits for the one just before it.
"""

import nki
import nki.isa as nisa
import nki.language as nl

PARTITIONS = 128


@nki.jit
def reloading(delta, u, A, B, C):
    """States outside, channels inside: every operand comes from HBM again for each state."""
    (channels, length), states = delta.shape, A.shape[1]
    y = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    starts = range(0, channels, PARTITIONS)
    totals = {c: _zeros(length) for c in starts}

    def begin(turn):
        state, c = turn
        rows = slice(c, c + PARTITIONS)
        d, v, decay = _load(delta[rows]), _load(u[rows]), _load(A[rows, state : state + 1])
        kept, product = _sbuf(length), _sbuf(length)
        nisa.activation(dst=kept, op=nl.exp, data=d, scale=decay)
        nisa.tensor_tensor(dst=product, data1=d, data2=v, op=nl.multiply)
        return kept, product

    def driven(turn, before):
        kept, product = before
        return kept, _times(product, _everywhere(B[turn[0]]))

    def scanned(turn, before):
        return _scan(*before, 0.0)

    def weighted(turn, before):
        return _times(before, _everywhere(C[turn[0]]))

    def added(turn, before):
        nisa.tensor_tensor(dst=totals[turn[1]], data1=totals[turn[1]], data2=before, op=nl.add)

    _in_turn([(state, c) for state in range(states) for c in starts], begin, driven, scanned, weighted, added)
    for c, total in totals.items():
        nisa.dma_copy(dst=y[c : c + PARTITIONS], src=total)
    return y


@nki.jit
def tiled(delta, u, A, B, C, piece=512):
    """Channels outside, pieces of time inside; delta u is made once a channel tile, and sums come through PSUM."""
    channels, length = delta.shape
    y = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    for c in range(0, channels, PARTITIONS):
        rows = slice(c, c + PARTITIONS)
        d, total = _load(delta[rows]), _zeros(length)
        product = _times(d, _load(u[rows]))
        _add_states(d, product, total, A[rows], B, C, piece)
        nisa.dma_copy(dst=y[rows], src=total)
    return y


def _add_states(d, product, total, A, B, C, piece):
    """total += the outputs of all states of one channel tile."""
    length, last = d.shape[1], {}
    decays = [_load(A[:, state : state + 1]) for state in range(A.shape[1])]

    def driven(turn):
        state, part = turn
        kept = _sbuf(piece)
        nisa.activation(dst=kept, op=nl.exp, data=d[:, part], scale=decays[state])
        return kept, _times(product[:, part], _everywhere(B[state, part]))

    def scanned(turn, before):
        state = turn[0]
        out = _scan(*before, last.get(state, 0.0))
        last[state] = out[:, piece - 1 : piece]
        return out

    def weighted(turn, before):
        return _times(before, _everywhere(C[turn]), nl.psum)

    def added(turn, before):
        part = total[:, turn[1]]
        nisa.tensor_tensor(dst=part, data1=part, data2=before, op=nl.add)

    pieces = [slice(start, start + piece) for start in range(0, length, piece)]
    _in_turn([(state, part) for part in pieces for state in range(A.shape[1])], driven, scanned, weighted, added)


def _in_turn(turns, *stages):
    """All stages of all turns, each stage one turn behind the one before it."""
    results = {}
    for now in range(len(turns) + len(stages) - 1):
        for behind in reversed(range(len(stages))):
            turn = now - behind
            if 0 <= turn < len(turns):
                before = (results.pop(turn),) if behind else ()
                results[turn] = stages[behind](turns[turn], *before)


def _sbuf(width, buffer=nl.sbuf):
    return nl.ndarray((PARTITIONS, width), dtype=nl.float32, buffer=buffer)


def _zeros(width):
    tile = _sbuf(width)
    nisa.memset(dst=tile, value=0.0)
    return tile


def _load(x):
    tile = _sbuf(x.shape[1])
    nisa.dma_copy(dst=tile, src=x)
    return tile


def _everywhere(row):
    """A row of HBM on all partitions."""
    tile = _sbuf(row.shape[0])
    nisa.dma_copy(dst=tile, src=row.expand_dim(0).broadcast(0, PARTITIONS))
    return tile


def _times(a, b, buffer=nl.sbuf):
    out = _sbuf(a.shape[1], buffer)
    nisa.tensor_tensor(dst=out, data1=a, data2=b, op=nl.multiply)
    return out


def _scan(kept, added, initial):
    out = _sbuf(kept.shape[1])
    nisa.tensor_tensor_scan(dst=out, data0=kept, data1=added, initial=initial, op0=nl.multiply, op1=nl.add)
    return out
