"""Enumerations of nki.isa; values as the NKI reference lists them."""

import enum


class Member(enum.Enum):
    """An enumeration whose members are quick to look answers up by: each is one object."""

    __hash__ = object.__hash__


class engine(Member):
    """Engine an instruction is asked to run on; `unknown` leaves the choice to the compiler."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


class reduce_cmd(Member):
    """What a reducing instruction does with the engine's accumulators."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(Member):
    """Who makes the descriptors of a DMA: the compiler's choice, software on GpSimdE, hardware, or the host."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(Member):
    """What a dynamic DMA does out of bounds."""

    error = 0
    skip = 1


class matmul_perf_mode(Member):
    """TensorE performance modes."""

    none = "none"
    double_row = "double_row"


class nc_version(Member):
    """NeuronCore generations."""

    gen2 = 2
    gen3 = 3
    gen4 = 4

    def __lt__(self, other: "nc_version") -> bool:
        return self.value < other.value

    def __le__(self, other: "nc_version") -> bool:
        return self.value <= other.value

    def __gt__(self, other: "nc_version") -> bool:
        return self.value > other.value

    def __ge__(self, other: "nc_version") -> bool:
        return self.value >= other.value


class dma_engine(Member):
    """DMA engine of sendrecv."""

    dma = 1
    gpsimd_dma = 2
