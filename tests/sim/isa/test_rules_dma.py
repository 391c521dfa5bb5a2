"""Rules of DMA, each as a pair of a legal call and its broken twin."""

import pytest
from calls import LEGAL, MAX, Pair, broken, full, hbm, ones

from kernels_neuron.sim.isa.enums import dge_mode, engine

PAIRS = [
    Pair("dma_copy", "dma-size", "equal element counts", broken(src=lambda b: hbm(b, (128, 15)))),
    Pair("dma_copy", "operand-buffer", "takes src in HBM or SBUF", broken(src=ones(128, 16, buffer="psum"))),
    Pair(
        "dma_copy",
        "hwdge-cast",
        "moves raw bytes",
        broken(src=lambda b: hbm(b, dtype="bfloat16")),
        lambda b: LEGAL["dma_copy"](b) | {"dge_mode": dge_mode.hwdge},
    ),
    Pair(
        "dma_copy",
        "chip-generation",
        "hwdge exists from trn2 on",
        broken(),
        lambda b: LEGAL["dma_copy"](b) | {"dge_mode": dge_mode.hwdge},
        broken_arch="trn1",
    ),
    Pair(
        "dma_copy",
        "chip-generation",
        "priority exists from trn3 on",
        broken(),
        lambda b: LEGAL["dma_copy"](b) | {"priority": 1},
        arch="trn3",
        broken_arch="trn2",
    ),
    Pair(
        "dma_copy",
        "dma-engine",
        "takes engine sync or scalar",
        broken(engine=engine.vector),
        lambda b: LEGAL["dma_copy"](b) | {"engine": engine.sync},
    ),
    Pair(
        "dma_copy",
        "dma-engine",
        "only with hwdge",
        broken(dge_mode=dge_mode.swdge),
        lambda b: LEGAL["dma_copy"](b) | {"engine": engine.sync, "dge_mode": dge_mode.hwdge},
    ),
    Pair("dma_transpose", "chip-generation", "exists from trn2 on", broken(), broken_arch="trn1"),
    Pair(
        "dma_transpose",
        "dma-transpose",
        "one dtype of 2 or 4 bytes",
        broken(dst=lambda b: b.empty((64, 16), "uint8"), src=lambda b: hbm(b, (16, 64), "uint8")),
    ),
    Pair(
        "dma_transpose",
        "dma-transpose",
        "by hwdge takes 2-byte elements, [16, n]",
        broken(dst=lambda b: b.empty((64, 8), "bfloat16"), dge_mode=dge_mode.hwdge),
        lambda b: {"dst": b.empty((64, 8), "bfloat16"), "src": hbm(b, (8, 64), "bfloat16")},
    ),
    Pair(
        "dma_transpose",
        "dma-transpose",
        "by hwdge takes 2-byte elements, [16, n]",
        broken(dge_mode=dge_mode.hwdge),
        lambda b: {"dst": b.empty((64, 16)), "src": hbm(b, (16, 64))},
    ),
    Pair("dma_transpose", "dma-transpose", "permutes 2-D by (1, 0)", broken(axes=(0, 1))),
    Pair("dma_transpose", "dma-transpose", "gives [64, 16]", broken(dst=lambda b: b.empty((64, 17), "bfloat16"))),
    Pair("dma_transpose", "dma-transpose", "unknown or hwdge or none, got swdge", broken(dge_mode=dge_mode.swdge)),
    Pair(
        "dma_copy",
        "dma-priority",
        "takes priority 0 to 3",
        broken(priority=4),
        lambda b: LEGAL["dma_copy"](b) | {"priority": 3},
        arch="trn3",
    ),
    Pair(
        "dma_transpose",
        "dma-transpose",
        "128",
        broken(dst=lambda b: b.empty((128, 16), "bfloat16"), src=lambda b: hbm(b, (16, 129), "bfloat16")),
        lambda b: {"dst": b.empty((128, 16), "bfloat16"), "src": hbm(b, (16, 128), "bfloat16")},
    ),
    Pair("dma_transpose", "operand-buffer", "takes dst in SBUF", broken(dst=lambda b: hbm(b, (64, 16), "bfloat16"))),
    Pair("dma_compute", "dma-sources", "takes 1 to 16 srcs, got 17", broken(srcs=lambda b: [full(b)] * 17)),
    Pair("dma_compute", "op-kind", "dma_compute adds", broken(reduce_op=MAX)),
    Pair("dma_compute", "dma-scales", "takes scales None or 1.0", broken(scales=(2.0, 1.0))),
    Pair("dma_compute", "operand-buffer", "in HBM or SBUF", broken(dst=ones(128, 16, buffer="psum"))),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_legal_call_passes_and_its_broken_twin_is_refused(machine, pair):
    pair.holds(machine)
