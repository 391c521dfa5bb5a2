"""Rules of launches on two cores and of collectives over ranks, each with a legal twin."""

import numpy as np
import pytest
from twins import Launch, Twin, X

from kernels_neuron.sim import shim

shim.install()
import nki.collectives as ncc  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402

TWO = ncc.ReplicaGroup([[0, 1]])


def hbm(shape=(8, 4), dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


def tile(shape=(1, 8), dtype=nl.float32):
    made = nl.ndarray(shape, dtype)
    nisa.memset(made, 0)
    return made


def by_rows(x, overlap):
    out, me = hbm(), nl.program_id(0)
    rows = slice(4 * me, 4 * me + 4) if not overlap else slice(0, 8)
    part = nl.ndarray((rows.stop - rows.start, 4), nl.float32)
    nisa.memset(part, float(me))
    nisa.dma_copy(out[rows], part)
    return out


def allocates(x, rows):
    me = nl.program_id(0)
    nl.ndarray((8, rows[me]), nl.float32, buffer=nl.shared_hbm)
    return by_rows(x, False)


def meets(x, comes):
    out = by_rows(x, False)
    if nl.program_id(0) in comes:
        nisa.core_barrier(out, (0, 1))
    return out


def sends(x, width=(8, 8), ranks=(1, 0), **given):
    me = nl.program_id(0)
    part = tile((1, width[me]))
    nisa.sendrecv(part, tile((1, width[me])), ranks[me], ranks[me], 0, **given)
    return by_rows(x, False)


def on_two(kernel, *args):
    return lambda launch: launch(kernel, X, *args, lnc=2)


def sent(**given):
    return lambda launch: launch(lambda x: sends(x, **given), X, lnc=2)


def over_two(call):
    """Ranks that make one collective call."""

    def kernel(x):
        call(x)
        return x

    return lambda launch: launch(kernel, X, ranks=2)


def table(rows=3, dtype=np.uint32):
    return np.array([[1, 1], [0, 2], [0, 0], [0, 0]][:rows], dtype)


def varies(call, metadata=None):
    def kernel(x, metadata):
        call(x, metadata)
        return x

    given = table() if metadata is None else metadata
    return lambda launch: launch(kernel, np.zeros((2, 4), np.float32), given, ranks=2)


def halves(triggers):
    def call(x, metadata):
        out = hbm((2, 4))
        prepared = ncc.all_to_all_v_prepare([x], [out], TWO, metadata)
        for _ in range(triggers):
            ncc.all_to_all_v_trigger(prepared)

    return call


TWINS = [
    Launch("lnc", "no logical cores of two", on_two(by_rows, False), on_two(by_rows, False), broken_arch="trn1"),
    Launch("lnc-divergence", "where program 0 allocated", on_two(allocates, (4, 4)), on_two(allocates, (4, 5))),
    Launch(
        "barrier-cores", "the kernel runs on one core", on_two(meets, (0, 1)), lambda launch: launch(meets, X, (0, 1))
    ),
    Launch("deadlock", "program 1 has ended", on_two(meets, (0, 1)), on_two(meets, (0,))),
    Launch("sendrecv-rank", "the kernel runs on one", sent(), lambda launch: launch(sends, X)),
    Launch("sendrecv-rank", "0 or 1, got 2", sent(), sent(ranks=(2, 0))),
    Launch("sendrecv-pair", "expects", sent(width=(8, 8)), sent(width=(8, 7))),
    Twin(
        "sendrecv-extent",
        "one shape and dtype",
        lambda b: b.tile(X),
        lambda b: nisa.sendrecv(b.tile(X), b.tile(X[:4]), 0, 0, 0),
    ),
    Launch(
        "gpsimd-dma-limit",
        "at most 1024 bytes per partition",
        sent(width=(256, 256), dma_engine=nisa.dma_engine.gpsimd_dma),
        sent(width=(257, 257), dma_engine=nisa.dma_engine.gpsimd_dma),
    ),
    Launch("race", "and nothing orders the two", on_two(by_rows, False), on_two(by_rows, True)),
    Launch(
        "replica-group",
        "takes a ReplicaGroup",
        over_two(lambda x: ncc.all_reduce([x], [hbm()], TWO, nl.add)),
        over_two(lambda x: ncc.all_reduce([x], [hbm()], [[0, 1]], nl.add)),
    ),
    Launch(
        "replica-group",
        "every rank once",
        over_two(lambda x: ncc.collective_permute([x], [hbm()], [(0, 1), (1, 0)])),
        over_two(lambda x: ncc.collective_permute([x], [hbm()], [(0, 1), (0, 1)])),
    ),
    Launch(
        "collective-tensors",
        "as many dsts as srcs",
        over_two(lambda x: ncc.all_reduce([x, x], [hbm(), hbm()], TWO, nl.add)),
        over_two(lambda x: ncc.all_reduce([x, x], [hbm()], TWO, nl.add)),
    ),
    Launch(
        "collective-extent",
        "gives float32[16, 4]",
        over_two(lambda x: ncc.all_gather([x], [hbm((16, 4))], TWO, 0)),
        over_two(lambda x: ncc.all_gather([x], [hbm((8, 4))], TWO, 0)),
    ),
    Launch(
        "collective-dim",
        "takes collective_dim 0",
        over_two(lambda x: ncc.all_gather([x], [hbm((16, 4))], TWO, 0)),
        over_two(lambda x: ncc.all_gather([x], [hbm((8, 8))], TWO, 1)),
    ),
    Launch(
        "collective-channels",
        "channel_ids",
        over_two(lambda x: ncc.collective_permute_implicit([x], [hbm()], TWO, channel_ids=[0])),
        over_two(lambda x: ncc.collective_permute_implicit([x], [hbm()], TWO, channel_ids=[1])),
    ),
    Launch(
        "collective-metadata",
        "metadata_tensor of shape",
        varies(lambda x, m: ncc.all_to_all_v([x], [hbm((2, 4))], TWO, m)),
        varies(lambda x, m: ncc.all_to_all_v([x], [hbm((2, 4))], TWO, m), table(2)),
    ),
    Launch("collective-prepare", "has triggered", varies(halves(1)), varies(halves(0))),
]


@pytest.mark.parametrize("twin", TWINS, ids=str)
def test_cores_that_agree_run_and_those_that_do_not_are_refused(machine, twin):
    twin.holds(machine)
