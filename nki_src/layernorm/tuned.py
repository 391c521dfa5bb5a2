"""Tile parameters of layernorm by chip, cores, dtype and sizes; common/tuning.py reads them.

Written by `kernels-neuron tune layernorm`: each row is faster than the kernel's own tiles by the latency
model, and equals the reference. The first row that covers a call counts.
"""

# (chip, physical cores, dtype, {size: (least, greatest)}, {parameter: value})
TUNED = [
    (
        "trn2",
        1,
        "bfloat16",
        {"N": (1576, 1576), "H": (768, 768)},
        {"dma_bytes": 2048, "blocks": 5, "short_blocks": 1, "scaled": 80},
    ),
]
