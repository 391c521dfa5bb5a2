"""Tile parameters of vit_attn by chip, cores, dtype and sizes; common/tuning.py reads them.

Written by `kernels-neuron tune vit_attn`: each row is faster than the kernel's own tiles by the latency
model, and equals the reference. The first row that covers a call counts.
"""

# (chip, physical cores, dtype, {size: (least, greatest)}, {parameter: value})
TUNED = []
