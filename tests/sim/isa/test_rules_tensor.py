"""Rules of TensorE and the MX formats, each as a pair of a legal call and its broken twin."""

import numpy as np
import pytest
from calls import LEGAL, Pair, broken, full, ones

from kernels_neuron.sim.isa.enums import engine, matmul_perf_mode

PAIRS = [
    Pair("nc_matmul", "operand-buffer", "takes dst in PSUM", broken(dst=lambda b: b.empty((16, 16)))),
    Pair(
        "nc_matmul",
        "operand-buffer",
        "takes moving in SBUF",
        broken(moving=ones(128, 16, dtype="bfloat16", buffer="psum")),
    ),
    Pair("nc_matmul", "operand-dtype", "takes stationary of", broken(stationary=lambda b: full(b, "int8"))),
    Pair("nc_matmul", "matmul-contraction", "contracts over partitions", broken(moving=ones(64, 16, dtype="bfloat16"))),
    Pair(
        "nc_matmul",
        "stationary-limit",
        "at most 128 stationary columns",
        broken(stationary=ones(128, 129, dtype="bfloat16")),
    ),
    Pair("nc_matmul", "matmul-extent", "gives [16, 16]", broken(dst=lambda b: b.empty((16, 15), buffer="psum"))),
    Pair(
        "nc_matmul",
        "moving-limit",
        "a moving free size of at most 512, got 513",
        broken(),
        lambda b: {
            "dst": b.empty((16, 513), buffer="psum"),
            "stationary": full(b, "bfloat16"),
            "moving": b.tile(np.ones((128, 513)), "bfloat16"),
        },
        arch="trn3",
        broken_arch="trn2",
    ),
    Pair(
        "nc_matmul",
        "psum-bank",
        "crosses one",
        broken(dst=lambda b: b.empty((16, 1024), buffer="psum")[:, 504:520]),
        lambda b: LEGAL["nc_matmul"](b) | {"dst": b.empty((16, 1024), buffer="psum")[:, 512:528]},
    ),
    Pair("nc_matmul", "matmul-dtypes", "only with each other", broken(moving=full)),
    Pair(
        "nc_matmul",
        "matmul-dtypes",
        "does not mix",
        broken(stationary=lambda b: full(b, "float8_e4m3fn"), moving=lambda b: full(b, "float8_e4m3")),
        arch="trn3",
    ),
    Pair(
        "nc_matmul",
        "chip-generation",
        "float8_e4m3fn exists from trn3 on",
        broken(stationary=lambda b: full(b, "float8_e4m3fn")),
    ),
    Pair(
        "nc_matmul",
        "operand-dtype",
        "takes dst of float32",
        broken(dst=lambda b: b.empty((16, 16), "bfloat16", "psum")),
    ),
    Pair("nc_matmul", "accumulate-unwritten", "which no matmul has written", broken(accumulate=True)),
    Pair(
        "nc_matmul",
        "accumulate-foreign",
        "undefined on trn2",
        broken(),
        lambda b: LEGAL["nc_matmul"](b) | {"dst": b.tile(np.ones((16, 16)), buffer="psum"), "accumulate": True},
        arch="trn3",
        broken_arch="trn2",
    ),
    Pair(
        "nc_matmul",
        "double-row",
        "takes [K, 2, M] and [K, 2, N]",
        broken(moving=lambda b: full(b, "float8_e5m2")),
        lambda b: {
            "dst": b.empty((16, 8), buffer="psum"),
            "stationary": b.tile(np.ones((128, 2, 16)), "float8_e5m2"),
            "moving": b.tile(np.ones((128, 2, 8)), "float8_e5m2"),
            "perf_mode": matmul_perf_mode.double_row,
        },
    ),
    Pair(
        "nc_matmul",
        "double-row",
        "takes fp8 operands",
        broken(perf_mode=matmul_perf_mode.double_row, dst=lambda b: b.empty((8, 4), buffer="psum")),
        lambda b: {
            "dst": b.empty((16, 8), buffer="psum"),
            "stationary": b.tile(np.ones((128, 2, 8)), "bfloat16"),
            "moving": b.tile(np.ones((128, 2, 4)), "bfloat16"),
        },
    ),
    Pair("nc_matmul", "pe-tile", "go together", broken(tile_position=(0, 0))),
    Pair("nc_matmul", "pe-tile", "starts at a multiple of it", broken(tile_position=(16, 0), tile_size=(128, 128))),
    Pair(
        "nc_matmul",
        "pe-tile",
        "does not hold 128",
        broken(tile_position=(0, 0), tile_size=(64, 128)),
        lambda b: LEGAL["nc_matmul"](b) | {"tile_position": (0, 0), "tile_size": (128, 32)},
    ),
    Pair("nc_transpose", "engine", "runs on tensor or vector", broken(engine=engine.scalar)),
    Pair(
        "nc_transpose", "transpose-extent", "gives [16, 128]", broken(dst=lambda b: b.empty((16, 127), buffer="psum"))
    ),
    Pair(
        "nc_transpose",
        "operand-dtype",
        "takes dst of float32",
        broken(dst=lambda b: b.empty((16, 128), "bfloat16", "psum")),
    ),
    Pair(
        "nc_transpose",
        "transpose-limit",
        "at most 32 by 32",
        broken(dst=lambda b: b.empty((33, 32)), data=ones(32, 33)),
        lambda b: {"dst": b.empty((32, 32)), "data": b.tile(np.ones((32, 32)))},
    ),
    Pair(
        "nc_matmul",
        "pe-tile",
        "a row size of 128, 64 and starts",
        broken(),
        lambda b: {
            "dst": b.empty((16, 16), buffer="psum"),
            "stationary": b.tile(np.ones((32, 16)), "bfloat16"),
            "moving": b.tile(np.ones((32, 16)), "bfloat16"),
            "tile_position": (32, 0),
            "tile_size": (32, 128),
        },
        broken_arch="trn1",
    ),
    *[
        Pair(
            "nc_matmul",
            "double-row",
            "neither with is_transpose nor with column tiles",
            broken(**change),
            lambda b: {
                "dst": b.empty((16, 8), buffer="psum"),
                "stationary": b.tile(np.ones((128, 2, 16)), "float8_e5m2"),
                "moving": b.tile(np.ones((128, 2, 8)), "float8_e5m2"),
                "perf_mode": matmul_perf_mode.double_row,
            },
        )
        for change in ({"is_transpose": True}, {"tile_position": (0, 0), "tile_size": (128, 64)})
    ],
    Pair(
        "nc_matmul",
        "chip-generation",
        "double_row exists from trn2 on",
        broken(),
        lambda b: {
            "dst": b.empty((16, 8), buffer="psum"),
            "stationary": b.tile(np.ones((128, 2, 16)), "float8_e5m2"),
            "moving": b.tile(np.ones((128, 2, 8)), "float8_e5m2"),
            "perf_mode": matmul_perf_mode.double_row,
        },
        broken_arch="trn1",
    ),
    Pair(
        "nc_matmul",
        "moving-limit",
        "at most 4096, got 4097",
        broken(dst=lambda b: b.empty((16, 4097), "float32", "psum"), moving=ones(128, 4097, dtype="bfloat16")),
        lambda b: {
            "dst": b.empty((16, 4096), buffer="psum"),
            "stationary": full(b, "bfloat16"),
            "moving": b.tile(np.ones((128, 4096)), "bfloat16"),
        },
        arch="trn3",
    ),
    Pair(
        "nc_matmul",
        "moving-limit",
        "at most 8192, got 8193",
        broken(dst=lambda b: b.empty((16, 8193), "bfloat16", "psum"), moving=ones(128, 8193, dtype="bfloat16")),
        lambda b: {
            "dst": b.empty((16, 8192), "bfloat16", "psum"),
            "stationary": full(b, "bfloat16"),
            "moving": b.tile(np.ones((128, 8192)), "bfloat16"),
        },
        arch="trn3",
    ),
    Pair("nc_matmul", "enum-type", "a member of nisa.matmul_perf_mode", broken(perf_mode="twice")),
    Pair("nc_matmul_mx", "chip-generation", "exists from trn3 on, this is trn2", broken(), broken_arch="trn2"),
    Pair("quantize_mx", "chip-generation", "exists from trn3 on, this is trn2", broken(), broken_arch="trn2"),
    Pair(
        "quantize_mx", "operand-buffer", "takes src in SBUF", broken(src=ones(128, 16, dtype="bfloat16", buffer="psum"))
    ),
    Pair("quantize_mx", "operand-dtype", "takes src of", broken(src=full)),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_legal_call_passes_and_its_broken_twin_is_refused(machine, pair):
    pair.holds(machine)
