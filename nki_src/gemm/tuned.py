"""Tile parameters of gemm by chip, cores, dtype and sizes; common/tuning.py reads them.

Written by `kernels-neuron tune gemm`: each row is faster than the kernel's own tiles by the latency
model, and equals the reference. The first row that covers a call counts.
"""

# (chip, physical cores, dtype, {size: (least, greatest)}, {parameter: value})
TUNED = [
    (
        "trn2",
        1,
        "bfloat16",
        {"M": (197, 197), "K": (768, 768), "N": (3072, 3072)},
        {
            "tile_m": 112,
            "tile_n": 384,
            "row_tiles": 4,
            "rows_first": 0,
            "panel_bytes": 65536,
            "row_bytes": 49152,
            "load_bytes": 262144,
        },
    ),
    (
        "trn2",
        1,
        "bfloat16",
        {"M": (1576, 1576), "K": (768, 768), "N": (768, 768)},
        {"tile_m": 128, "tile_n": 256, "row_tiles": 3, "rows_first": 0, "panel_bytes": 32768, "row_bytes": 49152},
    ),
    (
        "trn2",
        1,
        "bfloat16",
        {"M": (1576, 1576), "K": (768, 768), "N": (3072, 3072)},
        {"tile_m": 128, "tile_n": 256, "row_tiles": 4, "rows_first": 1, "panel_bytes": 65536, "row_bytes": 65536},
    ),
    (
        "trn2",
        1,
        "bfloat16",
        {"M": (1025, 2048), "K": (2049, 4096), "N": (513, 1024)},
        {"tile_m": 128, "tile_n": 256, "row_tiles": 3, "rows_first": 0, "panel_bytes": 32768, "row_bytes": 49152},
    ),
    (
        "trn2",
        1,
        "float32",
        {"M": (129, 256), "K": (513, 1024), "N": (2049, 4096)},
        {
            "tile_m": 128,
            "tile_n": 256,
            "row_tiles": 1,
            "rows_first": 2,
            "panel_bytes": 81920,
            "row_bytes": 65536,
            "load_bytes": 262144,
        },
    ),
    (
        "trn2",
        2,
        "bfloat16",
        {"M": (197, 197), "K": (768, 768), "N": (3072, 3072)},
        {"tile_m": 100, "tile_n": 256, "row_tiles": 3, "rows_first": 1, "panel_bytes": 32768, "row_bytes": 49152},
    ),
    (
        "trn2",
        2,
        "bfloat16",
        {"M": (1576, 1576), "K": (768, 768), "N": (3072, 3072)},
        {"tile_m": 128, "tile_n": 256, "row_tiles": 2, "rows_first": 1, "panel_bytes": 32768, "row_bytes": 65536},
    ),
]
