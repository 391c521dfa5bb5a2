"""Rules of searches, shuffles and gathers, each as a pair of a legal call and its broken twin."""

import numpy as np
import pytest
from calls import LEGAL, Pair, broken, column, full, ones

PAIRS = [
    Pair("nc_stream_shuffle", "shuffle-mask", "a mask of 32 entries", broken(shuffle_mask=[0] * 31)),
    Pair("nc_stream_shuffle", "shuffle-mask", "0 to 31 or 255", broken(shuffle_mask=[32] * 32)),
    Pair(
        "nc_stream_shuffle",
        "shuffle-mask",
        "partition 0 reads partition 1, src has 1",
        broken(shuffle_mask=[1] * 32),
        lambda b: {"dst": b.empty((32, 16)), "src": b.tile(np.ones((1, 16))), "shuffle_mask": [0] * 32},
    ),
    Pair("nc_stream_shuffle", "operand-extent", "equal elements per partition", broken(src=ones(128, 15))),
    Pair("nc_stream_shuffle", "operand-dtype", "takes src of float32", broken(src=lambda b: full(b, "bfloat16"))),
    Pair(
        "max8",
        "operand-extent",
        "8 to 16384",
        broken(src=ones(128, 7)),
        lambda b: {"dst": b.empty((128, 8)), "src": b.tile(np.ones((128, 8)))},
    ),
    Pair("max8", "operand-rank", "at most 3 dims", broken(src=ones(128, 2, 2, 4))),
    Pair("max8", "operand-extent", "takes dst of shape [128, 8]", broken(dst=ones(128, 7))),
    Pair(
        "nc_find_index8",
        "operand-dtype",
        "takes dst of uint16, uint32",
        broken(dst=lambda b: b.empty((128, 8), "int32")),
    ),
    Pair("nc_match_replace8", "operand-type", "a number as imm", broken(imm=column)),
    Pair(
        "max8",
        "operand-extent",
        "8 to 16384",
        broken(src=ones(1, 16385), dst=lambda b: b.empty((1, 8))),
        lambda b: {"dst": b.empty((1, 8)), "src": b.tile(np.ones((1, 16384)))},
    ),
    Pair(
        "nc_find_index8",
        "operand-extent",
        "8 to 16384",
        broken(data=ones(128, 7)),
        lambda b: LEGAL["nc_find_index8"](b) | {"data": b.tile(np.ones((128, 8)))},
    ),
    Pair("nc_find_index8", "operand-rank", "at most 3 dims", broken(data=ones(128, 2, 2, 4))),
    Pair("nc_find_index8", "operand-extent", "vals", broken(vals=ones(128, 7))),
    Pair("nc_match_replace8", "operand-extent", "vals", broken(vals=ones(128, 9))),
    Pair(
        "nc_stream_shuffle",
        "start-partition",
        "start 32",
        broken(dst=lambda b: b.empty((128, 16))[32:96], src=ones(64, 16)),
        lambda b: LEGAL["nc_stream_shuffle"](b) | {"dst": b.empty((128, 16))[64:128], "src": b.tile(np.ones((64, 16)))},
    ),
    Pair("local_gather", "operand-buffer", "takes src_buffer in SBUF", broken(src_buffer=ones(16, 8, buffer="psum"))),
    Pair("nc_n_gather", "operand-buffer", "takes data in SBUF", broken(data=ones(128, 16, buffer="psum"))),
    Pair("topk", "operand-buffer", "takes src in SBUF", broken(src=ones(16, 2, dtype="bfloat16", buffer="psum"))),
    Pair(
        "topk",
        "topk-count",
        "n from 8 to 65535",
        broken(n=7),
        lambda b: LEGAL["topk"](b) | {"n": 8},
    ),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_legal_call_passes_and_its_broken_twin_is_refused(machine, pair):
    pair.holds(machine)
