"""Tile parameters of a call: those `kernels-neuron tune` found for its sizes, else the kernel's own."""

import nki.isa as nisa
import nki.language as nl

CHIPS = {nisa.nc_version.gen2: "trn1", nisa.nc_version.gen3: "trn2", nisa.nc_version.gen4: "trn3"}


def tiles_for(tuned, defaults, dtype, sizes):
    """{parameter: value} of the first row of `tuned` that covers a call on this chip and these cores, over `defaults`.

    tuned     rows (chip, cores, dtype, {size: (least, greatest)}, {parameter: value}), as tuned.py has them
    defaults  {parameter: value} for what no row covers
    dtype     of the kernel's main input
    sizes     {size: value} of the call, by the names of [tune.sizes] in spec.toml
    """
    here = CHIPS[nisa.get_nc_version()], nl.num_programs(), str(dtype).split(".")[-1]
    for chip, cores, name, ranges, found in tuned:
        if (chip, cores, name) == here and all(low <= sizes[size] <= high for size, (low, high) in ranges.items()):
            return {**defaults, **found}
    return dict(defaults)
