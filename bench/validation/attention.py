"""Single-head attention without a mask, q, k, v as [128, S], written from the descriptions of two published kernels.

Scores, probabilities and transposed values are float32 whatever comes in, as published.
"""

import nki
import nki.isa as nisa
import nki.language as nl

P, MOVING = 128, 512


@nki.jit
def in_three_passes(q, k, v):
    """softmax(q^T k) v^T with scores and probabilities through HBM: one pass over all rows after the other."""
    length = q.shape[1]
    y = nl.ndarray((length, P), dtype=q.dtype, buffer=nl.shared_hbm)
    scores = nl.ndarray((length, length), dtype=nl.float32, buffer=nl.shared_hbm)
    queries, keys, values = _load(q), _load(k), _load(v)
    for row in range(0, length, P):
        nisa.dma_copy(dst=scores[row : row + P], src=_scores(queries[:, row : row + P], keys))
    for row in range(0, length, P):
        tile = _load(scores[row : row + P])
        pieces = [tile[:, part] for part in _parts(length)]
        exps, sums = _exps(pieces, _lowered(pieces))
        inverse = _inverse(sums)
        weights = _sbuf(length)
        for part in _parts(length):
            nisa.tensor_scalar(dst=weights[:, part], data=exps[:, part], op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=scores[row : row + P], src=weights)
    turned = _turned(values)
    for row in range(0, length, P):
        bank, out = _weighted(_turned(_load(scores[row : row + P])), turned), _sbuf(P, q.dtype)
        nisa.tensor_copy(dst=out, src=bank)
        nisa.dma_copy(dst=y[row : row + P], src=out)
    return y


@nki.jit
def in_one_pass(q, k, v):
    """softmax(q^T k) v^T for 128 rows at a time, divided by the sum at the end.

    In the order of the published profile of S = 512: neighbouring rows stage by stage, as many as fill half of PSUM;
    maxima and exponentials read PSUM.
    """
    length = q.shape[1]
    y = nl.ndarray((length, P), dtype=q.dtype, buffer=nl.shared_hbm)
    queries, keys, values = _load(q), _load(k), _load(v)
    turned = _turned(values)
    together = max(1, 4 * MOVING // length) * P
    for first in range(0, length, together):
        rows = range(first, min(first + together, length), P)
        scores = [_score_banks(queries[:, row : row + P], keys) for row in rows]
        lowered = [_lowered(banks) for banks in scores]
        exps, sums = zip(*[_exps(banks, low) for banks, low in zip(scores, lowered, strict=True)], strict=True)
        inverses = [_inverse(each) for each in sums]
        weights = [_turned(each) for each in exps]
        for row, weight, inverse in zip(rows, weights, inverses, strict=True):
            bank, out = _weighted(weight, turned), _sbuf(P, q.dtype)
            nisa.tensor_scalar(dst=out, data=bank, op0=nl.multiply, operand0=inverse)
            nisa.dma_copy(dst=y[row : row + P], src=out)
    return y


def _parts(length):
    return [slice(start, start + MOVING) for start in range(0, length, MOVING)]


def _sbuf(width, dtype=nl.float32):
    return nl.ndarray((P, width), dtype=dtype, buffer=nl.sbuf)


def _psum(width, dtype=nl.float32):
    return nl.ndarray((P, width), dtype=dtype, buffer=nl.psum)


def _load(x):
    tile = _sbuf(x.shape[1], x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def _score_banks(query, keys):
    banks = [_psum(MOVING) for _ in _parts(keys.shape[1])]
    for bank, part in zip(banks, _parts(keys.shape[1]), strict=True):
        nisa.nc_matmul(dst=bank, stationary=query, moving=keys[:, part])
    return banks


def _scores(query, keys):
    out = _sbuf(keys.shape[1])
    for bank, part in zip(_score_banks(query, keys), _parts(keys.shape[1]), strict=True):
        nisa.tensor_copy(dst=out[:, part], src=bank)
    return out


def _lowered(scores):
    """Less the maximum of scores, which come in pieces of 512 columns."""
    most, lowered = _sbuf(len(scores)), _sbuf(1)
    for at, piece in enumerate(scores):
        nisa.tensor_reduce(dst=most[:, at : at + 1], op=nl.maximum, data=piece, axis=1)
    nisa.tensor_reduce(dst=lowered, op=nl.maximum, data=most, axis=1, negate=True)
    return lowered


def _exps(scores, lowered):
    """exp(scores + lowered), and its sums over each piece."""
    exps, sums = _sbuf(len(scores) * MOVING), _sbuf(len(scores))
    for at, (piece, part) in enumerate(zip(scores, _parts(exps.shape[1]), strict=True)):
        nisa.activation(dst=exps[:, part], op=nl.exp, data=piece, bias=lowered, scale=1.0)
        nisa.tensor_reduce(dst=sums[:, at : at + 1], op=nl.add, data=exps[:, part], axis=1)
    return exps, sums


def _inverse(sums):
    total, inverse = _sbuf(1), _sbuf(1)
    nisa.tensor_reduce(dst=total, op=nl.add, data=sums, axis=1)
    nisa.reciprocal(dst=inverse, data=total)
    return inverse


def _turned(x):
    """The transposes of the 128-column tiles of x, side by side, in float32: four to a bank, copied by two engines."""
    out = _sbuf(x.shape[1])
    for turn, part in enumerate(_parts(x.shape[1])):
        bank = _psum(MOVING, x.dtype)
        for start in range(0, MOVING, P):
            nisa.nc_transpose(dst=bank[:, start : start + P], data=x[:, part][:, start : start + P])
        nisa.tensor_copy(dst=out[:, part], src=bank, engine=(nisa.engine.scalar, nisa.engine.vector)[turn % 2])
    return out


def _weighted(weights, turned):
    bank = _psum(P)
    for start in range(0, turned.shape[1], P):
        nisa.nc_matmul(dst=bank, stationary=weights[:, start : start + P], moving=turned[:, start : start + P])
    return bank
