"""Tile parameters of patch_embed by chip, cores, dtype and sizes; common/tuning.py reads them.

Written by `kernels-neuron tune patch_embed`: each row is faster than the kernel's own tiles by the latency
model, and equals the reference. The first row that covers a call counts.
"""

# (chip, physical cores, dtype, {size: (least, greatest)}, {parameter: value})
TUNED = [
    (
        "trn2",
        1,
        "bfloat16",
        {"M": (1369, 1369), "K": (588, 588), "N": (384, 384)},
        {"row_tiles": 4, "rows_first": 0, "panel_bytes": 32768, "load_bytes": 262144},
    ),
    (
        "trn2",
        1,
        "bfloat16",
        {"M": (196, 196), "K": (768, 768), "N": (768, 768)},
        {"row_tiles": 1, "rows_first": 0, "panel_bytes": 32768, "load_bytes": 262144},
    ),
    (
        "trn2",
        1,
        "bfloat16",
        {"M": (1568, 1568), "K": (768, 768), "N": (768, 768)},
        {"row_tiles": 1, "rows_first": 1, "panel_bytes": 32768},
    ),
]
