"""Legal calls of every instruction, and pairs of a legal call and its twin that breaks one rule."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels_neuron.sim.isa.ops import OPS
from kernels_neuron.sim.register import VirtualRegister

ADD, SUB, MUL, MAX, EXP, RSQRT = (OPS[name] for name in ("add", "subtract", "multiply", "maximum", "exp", "rsqrt"))
AND, SHIFT, POWER, GE, LT = (OPS[name] for name in ("bitwise_and", "left_shift", "power", "greater_equal", "less"))


@dataclass(frozen=True)
class Pair:
    """One rule of one instruction: the words of its refusal, what the broken call changes, the legal arguments."""

    name: str
    rule: str
    words: str
    broken: Callable[[Any], dict[str, Any]]
    legal: Callable[[Any], dict[str, Any]] | None = None
    arch: str = ""
    broken_arch: str | None = None

    def __str__(self) -> str:
        return f"{self.name}-{self.rule}-{self.words.replace(' ', '_')[:40]}"

    def holds(self, machine: Any) -> None:
        """The legal call passes, its twin is refused by name before it has any effect."""
        build = self.legal or LEGAL[self.name]
        arch = self.arch or ARCH.get(self.name, "trn2")
        legal = machine(arch)
        assert legal.issue(self.name, **build(legal))

        twin = machine(self.broken_arch or arch)
        message = twin.refuses(self.rule, self.name, **(build(twin) | self.broken(twin)))
        assert self.words in message


def ones(*shape, dtype="float32", buffer="sbuf", start=0):
    """A maker of a tile of ones."""
    return lambda bench: bench.tile(np.ones(shape), dtype, buffer, start)


def full(b, dtype="float32", buffer="sbuf"):
    """A tile of ones, [128, 16]."""
    return b.tile(np.ones((128, 16)), dtype, buffer)


def column(b, dtype="float32", buffer="sbuf", partitions=128):
    """A tile of ones, [128, 1]."""
    return b.tile(np.ones((partitions, 1)), dtype, buffer)


def hbm(b, shape=(128, 16), dtype="float32"):
    """An HBM tensor of ones."""
    return b.tile(np.ones(shape), dtype, "shared_hbm")


def packed(b, columns, dtype="float8_e4m3fn_x4", partitions=128):
    """A tile of packed zeros."""
    tile = b.empty((partitions, columns), dtype)
    b.issue("memset", tile, 0)
    return tile


def broken(**changes):
    """Arguments that replace legal ones; callables are built on the machine."""
    return lambda b: {
        key: value(b) if callable(value) and not hasattr(value, "alu") else value for key, value in changes.items()
    }


LEGAL: dict[str, Callable[[Any], dict[str, Any]]] = {
    "tensor_copy": lambda b: {"dst": full(b), "src": full(b)},
    "tensor_tensor": lambda b: {"dst": full(b), "data1": full(b), "data2": full(b), "op": ADD},
    "tensor_scalar": lambda b: {"dst": full(b), "data": full(b), "op0": MUL, "operand0": column(b)},
    "scalar_tensor_tensor": lambda b: {
        "dst": full(b),
        "data": full(b),
        "op0": MUL,
        "operand0": 2.0,
        "op1": ADD,
        "operand1": full(b),
    },
    "reciprocal": lambda b: {"dst": full(b), "data": full(b)},
    "memset": lambda b: {"dst": full(b), "value": 1.0},
    "tensor_reduce": lambda b: {"dst": column(b), "op": ADD, "data": full(b), "axis": 1},
    "tensor_scalar_reduce": lambda b: {
        "dst": full(b),
        "data": full(b),
        "op0": MUL,
        "operand0": 2.0,
        "reduce_op": ADD,
        "reduce_res": column(b),
    },
    "tensor_tensor_scan": lambda b: {
        "dst": full(b),
        "data0": full(b),
        "data1": full(b),
        "initial": 0.0,
        "op0": MUL,
        "op1": ADD,
    },
    "tensor_scalar_cumulative": lambda b: {"dst": full(b), "src": full(b), "op0": MUL, "op1": ADD, "imm0": 1.0},
    "bn_stats": lambda b: {"dst": b.empty((128, 6)), "data": full(b)},
    "bn_aggr": lambda b: {"dst": b.empty((128, 2)), "data": b.tile(np.ones((128, 6)))},
    "tensor_copy_predicated": lambda b: {"dst": full(b), "src": full(b), "predicate": full(b, "uint8")},
    "select_reduce": lambda b: {"dst": full(b), "predicate": full(b, "uint8"), "on_true": full(b), "on_false": 0.0},
    "range_select": lambda b: {
        "dst": full(b),
        "on_true_tile": full(b),
        "comp_op0": GE,
        "comp_op1": LT,
        "bound0": column(b),
        "bound1": column(b),
    },
    "iota": lambda b: {"dst": full(b, "int32"), "pattern": [[1, 16]]},
    "affine_select": lambda b: {
        "dst": full(b),
        "pattern": [[1, 16]],
        "channel_multiplier": 1,
        "on_true_tile": full(b),
        "on_false_value": 0.0,
    },
    "nc_stream_shuffle": lambda b: {"dst": full(b), "src": full(b), "shuffle_mask": list(range(32))},
    "max8": lambda b: {"dst": b.empty((128, 8)), "src": full(b)},
    "nc_find_index8": lambda b: {
        "dst": b.empty((128, 8), "uint16"),
        "data": full(b),
        "vals": b.tile(np.ones((128, 8))),
    },
    "nc_match_replace8": lambda b: {"dst": full(b), "data": full(b), "vals": b.tile(np.ones((128, 8))), "imm": 0.0},
    "activation": lambda b: {"dst": full(b), "op": EXP, "data": full(b)},
    "activation_reduce": lambda b: {
        "dst": full(b),
        "op": EXP,
        "data": full(b),
        "reduce_op": ADD,
        "reduce_res": column(b),
    },
    "nc_matmul": lambda b: {
        "dst": b.empty((16, 16), buffer="psum"),
        "stationary": full(b, "bfloat16"),
        "moving": full(b, "bfloat16"),
    },
    "nc_transpose": lambda b: {"dst": b.empty((16, 128), buffer="psum"), "data": full(b)},
    "dma_copy": lambda b: {"dst": full(b), "src": hbm(b)},
    "dma_transpose": lambda b: {"dst": b.empty((64, 16), "bfloat16"), "src": hbm(b, (16, 64), "bfloat16")},
    "dma_compute": lambda b: {"dst": full(b), "srcs": [full(b), full(b)], "reduce_op": ADD},
    "dropout": lambda b: {"dst": full(b), "data": full(b), "prob": 0.5},
    "tensor_partition_reduce": lambda b: {"dst": b.empty((1, 16)), "op": ADD, "data": full(b)},
    "sequence_bounds": lambda b: {"dst": b.empty((1, 2, 16)), "segment_ids": b.tile(np.ones((1, 16)))},
    "nonzero_with_count": lambda b: {"dst": b.empty((128, 17), "int32"), "src": full(b)},
    "topk": lambda b: {
        "val_dst": b.empty((16, 4), "bfloat16"),
        "idx_dst": b.empty((16, 4), "uint32"),
        "src": b.tile(np.ones((16, 2)), "bfloat16"),
        "n": 20,
    },
    "local_gather": lambda b: {
        "dst": b.empty((16, 16)),
        "src_buffer": b.tile(np.ones((16, 8))),
        "index": b.tile(np.zeros((16, 1), np.uint16)),
    },
    "nc_n_gather": lambda b: {"dst": full(b), "data": full(b), "indices": b.tile(np.zeros((128, 16), np.uint32))},
    "activate2": lambda b: {
        "dst": full(b),
        "op": EXP,
        "data": full(b),
        "imm0": 1.0,
        "imm1": 0.0,
        "op0": MUL,
        "op1": ADD,
    },
    "exponential": lambda b: {"dst": full(b), "src": full(b)},
    "quantize_mx": lambda b: {
        "dst": b.empty((128, 4), "float8_e4m3fn_x4"),
        "src": full(b, "bfloat16"),
        "dst_scale": b.empty((128, 4), "uint8"),
    },
    "nc_matmul_mx": lambda b: {
        "dst": b.empty((8, 16), buffer="psum"),
        "stationary": packed(b, 8),
        "moving": packed(b, 16),
        "stationary_scale": b.tile(np.full((128, 8), 127, np.uint8)),
        "moving_scale": b.tile(np.full((128, 16), 127, np.uint8)),
    },
    "rng": lambda b: {"dst": b.empty((128, 16), "uint32")},
    "rand2": lambda b: {"dst": full(b), "min": 0.0, "max": 1.0},
    "set_rng_seed": lambda b: {"src_seeds": b.tile(np.ones((1, 1), np.uint32))},
    "rand_set_state": lambda b: {"src_seeds": b.tile(np.ones((128, 6), np.uint32))},
    "rand_get_state": lambda b: {"dst": b.empty((128, 6), "uint32")},
    "register_move": lambda b: {"dst": VirtualRegister(), "src": 3},
    "register_load": lambda b: {"dst": VirtualRegister(), "src": b.tile(np.ones((1, 1), np.int32))},
    "register_store": lambda b: {"dst": b.empty((1, 1), "int32"), "src": VirtualRegister(3)},
}

# the chip of a legal call, where it is not trn2
ARCH = dict.fromkeys(("activate2", "exponential", "quantize_mx", "nc_matmul_mx", "rand2"), "trn3")
# instructions that need a second core
MEETINGS = ("core_barrier", "sendrecv")
