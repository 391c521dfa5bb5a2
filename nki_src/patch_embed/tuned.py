"""Tile parameters of patch_embed by chip, cores, dtype and sizes; common/tuning.py reads them.

Written by `kernels-neuron tune patch_embed`: each row is faster than the kernel's own tiles by the latency
model, and equals the reference. The first row that covers a call counts.
"""

# (chip, physical cores, dtype, {size: (least, greatest)}, {parameter: value})
TUNED = []
