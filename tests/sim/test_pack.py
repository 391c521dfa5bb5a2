import pytest

from kernels_neuron.arch import chip
from kernels_neuron.errors import KernelError
from kernels_neuron.sim.place import place
from kernels_neuron.sim.trace import Price, Record, Region, Tile, Trace

PRICE = Price(1.0, 1.0)
SIZE = 70 << 10  # three of them fit one above the other


class Kernel:
    """Tiles by name and the steps that use them, the way a rotary embedding uses them."""

    def __init__(self):
        self.trace = Trace("trn2", 0, lines=[("kernel.py", 7)])

    def tile(self, name, partitions, nbytes=SIZE, address=None):
        tile = Tile(len(self.trace.tiles), name, "sbuf", "uint8", (partitions, nbytes), partitions, nbytes, 0, address)
        self.trace.tiles[tile.id] = tile

    def region(self, name, partitions=None):
        tile = next(tile for tile in self.trace.tiles.values() if tile.name == name)
        low, high = partitions or (0, tile.partitions)
        return Region(tile.id, low, high, 0, tile.nbytes)

    def step(self, instruction, reads, writes, engine="vector"):
        reads, writes = ([self.region(*use) for use in uses] for uses in (reads, writes))
        self.trace.records.append(Record(instruction, engine, PRICE, tuple(reads), tuple(writes), 0, 0))

    def places(self):
        place(self.trace, chip("trn2"))
        return {self.trace.tiles[i].name: spot for i, spot in self.trace.places.items()}


def rotary(third_write="tensor_tensor"):
    """x [128], rotated half by half with 64-partition products: 5 x SIZE would be live on partition 0."""
    kernel = Kernel()
    for name in ("x", "out"):
        kernel.tile(name, 128)
    for name in ("odd", "even_cos", "odd_cos", "even_sin", "odd_sin"):
        kernel.tile(name, 64)
    for name in ("cos", "sin"):
        kernel.tile(name, 64, 4096)
    half = (0, 64)
    for name in ("x", "cos", "sin"):
        kernel.step("dma_copy", [], [(name,)], "dma")
    kernel.step("tensor_copy", [("x", (64, 128))], [("odd",)])
    kernel.step("tensor_tensor", [("x", half), ("cos",)], [("even_cos",)])
    kernel.step("tensor_tensor", [("odd",), ("cos",)], [("odd_cos",)])
    kernel.step("tensor_tensor", [("x", half), ("sin",)], [("even_sin",)])
    kernel.step(third_write, [("odd",), ("sin",)], [("odd_sin",)])
    kernel.step("tensor_tensor", [("even_cos",), ("odd_sin",)], [("out", half)])
    kernel.step("tensor_tensor", [("odd_cos",), ("even_sin",)], [("out", (64, 128))])
    kernel.step("dma_copy", [("out",)], [], "dma")
    return kernel


def test_half_tiles_lie_side_by_side_when_they_do_not_fit_one_above_the_other():
    places = rotary().places()
    assert {places[name].partition for name in ("odd_cos", "even_sin")} == {64}
    # what one instruction reads starts on one partition
    assert {places[name].partition for name in ("x", "odd", "cos", "sin", "even_cos", "odd_sin", "out")} == {0}


def test_a_result_takes_the_bytes_of_the_operand_that_dies():
    places = rotary().places()
    assert places["odd_sin"] == places["odd"]


def test_no_bytes_are_shared_by_tiles_that_are_live_together():
    kernel = rotary()
    places = kernel.places()
    first, last = {}, {}
    for index, region, _ in kernel.trace.uses():
        first.setdefault(region.tile, index)
        last[region.tile] = index
    tiles = list(kernel.trace.tiles.values())
    for a in tiles:
        for b in tiles[: a.id]:
            if first[a.id] < last[b.id] and first[b.id] < last[a.id]:
                here, there = places[a.name], places[b.name]
                apart = here.byte >= there.byte + b.nbytes or there.byte >= here.byte + a.nbytes
                beside = (
                    here.partition >= there.partition + b.partitions or there.partition >= here.partition + a.partitions
                )
                assert apart or beside, (a.name, b.name)


def test_a_transpose_may_not_write_over_what_it_reads_so_the_kernel_is_refused():
    with pytest.raises(KernelError, match="sbuf on trn2 holds") as caught:
        rotary(third_write="nc_transpose").places()
    assert caught.value.rule == "sbuf-capacity"


@pytest.mark.parametrize(("partitions", "most"), [(128, 3), (65, 3), (64, 6), (33, 6), (32, 12), (1, 12)])
def test_as_many_tiles_fit_as_their_start_partitions_allow(partitions, most):
    def live_together(count):
        kernel = Kernel()
        for i in range(count):
            kernel.tile(f"t{i}", partitions)
        for reads in ([], ["t"]):
            for i in range(count):
                kernel.step("iota", [(f"{name}{i}",) for name in reads], [(f"t{i}",)], "gpsimd")
        return kernel

    assert len(live_together(most).places()) == most
    with pytest.raises(KernelError, match="holds 229376 bytes"):
        live_together(most + 1).places()


def test_what_the_tensor_engine_reads_stays_at_partition_zero():
    kernel = Kernel()
    for i in range(4):
        kernel.tile(f"t{i}", 64)
        kernel.step("iota", [], [(f"t{i}",)], "gpsimd")
    for i in range(4):
        kernel.step("nc_matmul", [(f"t{i}",)], [], "tensor")
    with pytest.raises(KernelError, match="holds 229376 bytes"):
        kernel.places()


def test_pinned_tiles_keep_their_address_and_others_go_beside_them():
    kernel = Kernel()
    kernel.tile("pin", 64, 220 << 10, address=(0, 0))
    for name in ("a", "b"):
        kernel.tile(name, 64)
    for name in ("pin", "a", "b"):
        kernel.step("iota", [], [(name,)], "gpsimd")
    for name in ("pin", "a", "b"):
        kernel.step("dma_copy", [(name,)], [], "dma")
    places = kernel.places()
    assert places["pin"][1:] == (0, 0)
    assert {places["a"].partition, places["b"].partition} == {64}
