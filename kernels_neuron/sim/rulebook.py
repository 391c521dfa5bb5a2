"""RULES: every rule that a run refuses a kernel for, by the id its error carries. Written out in docs/rules.md."""

from dataclasses import dataclass

_ISA = "NKI ISA reference"
_NL = "NKI language reference"
_CC = "NKI collectives reference"
_GUIDE = "NKI language guide"
_MIGRATION = "NKI migration guide"
_NOTES = "NKI release notes"
_ARCH1 = "Trainium and Inferentia2 architecture guide"
_ARCH2 = "Trainium2 architecture guide"
_PATTERNS = "NKI access pattern guide"
_DGE = "NKI DGE guide"
_LOOPS = "NKI dynamic loops guide"
_SIMULATOR = "NKI CPU simulator guide, which has no such check"
_OURS = "a limit of this simulator"


@dataclass(frozen=True)
class Rule:
    """One rule.

    says      what is legal, as one sentence
    source    the vendor's document that says so
    chips     the chips it holds on; where limits differ, each with its own
    versions  the NKI versions it holds for
    """

    says: str
    source: str
    chips: str = "all"
    versions: str = "all"


# by what they are about, in the order of docs/rules.md
BOOK: dict[str, dict[str, Rule]] = {
    "Operands": {
        "operand-type": Rule("an operand is a tensor, or a number where the call takes one", _ISA),
        "operand-buffer": Rule("an operand lies in a memory that the instruction reaches", f"{_ISA}; {_ARCH1}"),
        "operand-dtype": Rule("an operand has a dtype that the instruction takes", _ISA),
        "operand-extent": Rule("operands have the partitions and the elements per partition the call asks for", _ISA),
        "operand-rank": Rule("an operand has no more dims than the instruction encodes", _ISA),
        "partition-limit": Rule("an on-chip tile or operand spans at most 128 partitions", f"{_ARCH1}; {_NOTES} 0.6"),
        "partition-step": Rule("an on-chip operand covers partitions that follow each other", _ARCH1),
        "start-partition": Rule(
            "more than 64 partitions start at 0, more than 32 at 0 or 64, others at 0, 32, 64 or 96", _ARCH1
        ),
        "free-size": Rule("an operand has at most 65536 elements per partition in SBUF, 4096 in PSUM", _ARCH1),
        "free-stride": Rule("a step along a free dim is at most 32767 elements", _ARCH1),
        "two-psum-inputs": Rule("of two inputs at most one lies in PSUM", _ISA),
        "gpsimd-psum": Rule("GpSimdE reaches SBUF alone", f"{_ISA}; {_ARCH1}"),
        "gpsimd-cores": Rule("partitions come in the groups of 16 that one core of GpSimdE works on", _ISA),
        "bitvec-dtype": Rule("bit operations take integers of one width and cast nothing", _ISA),
    },
    "Calls": {
        "call-signature": Rule("a call fits the signature of the version", f"{_ISA}; {_NOTES} 0.2"),
        "enum-type": Rule("an enumeration is given by its member, not by the number behind it", f"{_MIGRATION} 0.3"),
        "enum-value": Rule("an argument is one of the members the call takes", _ISA),
        "flag": Rule("a flag is True or False", _ISA),
        "op-type": Rule("op= takes an operator such as nl.add", _ISA),
        "op-kind": Rule("an operator is of the kind the call takes: binary, unary, bit, comparison, reduction", _ISA),
        "op-call": Rule("an operator is called with as many tiles as it has operands", _NL),
        "engine": Rule("an instruction runs on an engine that has it, with operators that the engine has", _ISA),
        "chip-generation": Rule("a call, or an argument of it, exists on the chip", _ISA, "trn1, trn2"),
        "api-version": Rule("names, arguments and methods exist in the NKI of the run", _NOTES, versions="0.3 to 0.6"),
        "retired": Rule("a name that is gone is not used", f"{_MIGRATION}; {_NOTES}"),
        "not-on-device": Rule("nl.divide, nl.mod and nl.fmod are not called: no instruction has them", f"{_NOTES} 0.4"),
        "not-simulated": Rule("what no document describes is not called", _OURS),
        "outside-kernel": Rule("NKI functions are called while a kernel runs", _NL),
        "field-left-out": Rule("a field of an nl.NKIObject that is read was given a value", _GUIDE),
    },
    "TensorE": {
        "matmul-contraction": Rule("stationary and moving have the same partitions, over which the sum runs", _ISA),
        "matmul-extent": Rule("dst has the columns of stationary as partitions and those of moving as elements", _ISA),
        "matmul-dtypes": Rule("32-bit floats pair with each other, float8_e4m3 never with float8_e4m3fn", _ISA),
        "stationary-limit": Rule("stationary has at most 128 columns; an even number of them in nc_matmul_mx", _ISA),
        "moving-limit": Rule(
            "moving has at most 512 columns; on trn3 4096, or 8192 into bfloat16", _ISA, "trn1, trn2: 512; trn3: 4096"
        ),
        "psum-bank": Rule(
            "a PSUM tile starts at a bank of 2 KiB; a matmul writes inside one on trn1 and trn2", f"{_ISA}; {_ARCH1}"
        ),
        "accumulate-unwritten": Rule("accumulate=True adds to what an overwriting matmul wrote", _ISA),
        "accumulate-foreign": Rule(
            "nc_matmul does not add to what another instruction put into PSUM", _ISA, "trn1, trn2"
        ),
        "pe-tile": Rule(
            "a tile of TensorE has 32, 64 or 128 rows and columns, starts at a multiple of them and holds its operands",
            _ISA,
        ),
        "double-row": Rule("double_row takes fp8 operands [K, 2, M] and [K, 2, N], neither transposed nor tiled", _ISA),
        "mx-partitions": Rule("MX data lies on a multiple of 32 partitions", _ISA, "trn3"),
        "mx-scale": Rule("MX scales lie in the quadrant of their data at offset 0, 4, 8 or 12", _ISA, "trn3"),
        "transpose-limit": Rule("nc_transpose takes 128 by 128 on TensorE, 32 by 32 on VectorE", _ISA),
        "transpose-extent": Rule("nc_transpose of [p, f] writes [f, p]", _ISA),
    },
    "Functions and reductions": {
        "activation-function": Rule("op= of an activation is in ScalarE's table of functions", _ISA),
        "activation-bias": Rule("reciprocal takes no bias on trn1", _ISA, "trn1"),
        "reduce-axis": Rule("tensor_reduce reduces trailing free dims, the last one among them", _ISA),
        "reduce-op": Rule("a reduction uses an operator that the instruction reduces with", _ISA),
        "reduce-command": Rule("reduce_cmd is one that the instruction and its engine have", _ISA),
        "reduce-idle": Rule("reduce_res is given where something is reduced", _ISA),
        "reduce-init": Rule("a start value is given with load_reduce, and only then", _ISA),
        "accumulator-undefined": Rule("a chain of reductions starts with a reset or a load", _ISA),
        "reverse": Rule("operands are reversed where the operator has two", _ISA),
        "bn-stats-limit": Rule("bn_stats takes at most 512 elements per partition", _ISA),
        "bn-aggr-triples": Rule("bn_aggr takes triples of count, mean and variance times count", _ISA),
        "on-false-value": Rule("range_select takes the least float32 as on_false_value", f"{_ISA}; {_MIGRATION} 0.3"),
        "range-start": Rule("range_select counts its indices below 2**24, which float32 holds exactly", _ISA),
        "memset-value": Rule("memset takes a value that dst holds: no fraction in an integer, 0 in packed types", _ISA),
        "pattern": Rule("a pattern has 1 to 4 pairs of step and count over the elements of a partition", _ISA),
        "shuffle-mask": Rule("a shuffle mask has 32 entries, partitions of the source's quadrant or 255", _ISA),
        "random-range": Rule("a random number has a least value below the largest, a probability lies in [0, 1]", _ISA),
        "gather-piece": Rule("local_gather moves 1, 2, 4, 8, 16 or 32 elements per index", _ISA),
        "gather-count": Rule("local_gather takes at most 4096 indices, and no more than the tile holds", _ISA),
        "gather-index": Rule("an index of a gather lies inside the partition it reads", _ISA),
        "topk-count": Rule("topk finds 1 to n of n elements, n from 8 to 65535", _ISA),
    },
    "DMA": {
        "dma-size": Rule("both sides of a DMA have as many elements", _ISA),
        "dma-cast": Rule("a DMA does not cast packed types", _ISA),
        "hwdge-cast": Rule("a DMA by hwdge moves bytes: both sides have one dtype", f"{_MIGRATION} 0.3"),
        "dge-dynamic": Rule("an index per row takes swdge, an address known at run time takes a DGE", _DGE),
        "dma-engine": Rule("engine= is sync or scalar, with dge_mode hwdge", _ISA),
        "dma-priority": Rule("priority is 0 to 3, on trn3", _ISA, "trn3", "from 0.4 on"),
        "dma-sources": Rule("dma_compute adds 1 to 16 sources", _ISA),
        "dma-scales": Rule("dma_compute takes scales of 1.0", _ISA),
        "dma-modify": Rule("dma_compute with an index has two sources, dst among them, and unique indices", _ISA),
        "dma-transpose": Rule("dma_transpose takes the permutations, sizes and dtypes of its mode", _ISA),
        "oob-mode": Rule("oob_mode.skip comes with a dynamic address", _ISA),
        "out-of-bounds": Rule("an index, a slice or a transfer stays inside its tensor", f"{_ISA}; {_NL}"),
    },
    "Views": {
        "index-rank": Rule("a tensor is indexed with at most one index a dim", _NL),
        "index-type": Rule("an index is a whole number, a slice or nl.ds", _NL),
        "empty-slice": Rule("a slice holds an element", _NL),
        "view-dim": Rule("a dim is one of the tensor's", _NL),
        "view-rank": Rule("a view has at least one dim, and at most a partition axis and four free dims", _NL),
        "view-dtype": Rule("view(dtype) reads a contiguous last dim of whole elements", _NL),
        "view-reshape": Rule("a reshape keeps the elements and needs no copy", _NL),
        "view-flatten": Rule("flatten_dims merges dims that are contiguous in memory", _NL),
        "view-permute": Rule("permute takes each dim once and keeps the partition axis first", _NL),
        "view-broadcast": Rule("a broadcast repeats a dim of size 1", _NL),
        "view-squeeze": Rule("squeeze_dim drops a dim of size 1", _NL),
        "rearrange": Rule("rearrange names every dim once on both sides, sizes included", _NL),
        "partition-view": Rule("no view moves elements across partitions", _NL),
        "ap-partition": Rule("an access pattern on chip starts with the step of a partition", _PATTERNS),
        "ap-view-offset": Rule(
            "ap(offset=) is called on whole tensors, where switch ap_view_offset refuses others",
            f"{_NL} and {_PATTERNS} contradict each other",
        ),
        "grid-shape": Rule("a grid of tiles has positive sizes that fit the tensor's dims", _NL, versions="0.7"),
        "grid-data": Rule("the cells that .data stands for lie next to each other", _NL, versions="0.7"),
    },
    "Dynamic addresses, registers and loops": {
        "dynamic-offset": Rule("a dynamic offset is a register or integers in SBUF, one or one a row", _PATTERNS),
        "dynamic-dim": Rule("an index per row selects along dim 0 of an HBM tensor", f"{_NL}; {_PATTERNS}"),
        "dynamic-view": Rule("a view has one dynamic offset and keeps its dtype", _NL),
        "dynamic-operand": Rule("an operand with an index per row is moved by DMA", _NL),
        "indirect-index": Rule(
            "an index tile has the partitions of its tensor, and names what is written once", _ISA, "trn3"
        ),
        "indirect-operand": Rule("an indirect operand stands where its instruction takes one", _ISA, "trn3"),
        "register-operand": Rule("a register or a scalar, and one element, stand where the call takes them", _ISA),
        "register-value": Rule("a register holds a 32-bit number", _ISA),
        "register-frozen": Rule("the register that counts a loop is not written", _ISA),
        "register-unset": Rule("a register that is read was written", _ISA),
        "register-unknown": Rule("a price-only run decides nothing by what memory holds", _OURS),
        "register-in-python": Rule("Python neither branches on a register nor computes with it", _ISA, versions="0.7"),
        "scalar-dtype": Rule("a scalar has a dtype that nisa.NkiScalar takes", _ISA, versions="0.7"),
        "loop-bound": Rule("a loop counts up by a known step between integers or registers", f"{_NL}; {_LOOPS}"),
        "loop-body": Rule("the body of fori_loop returns nothing, that of while_loop a register", _NL),
        "no-reorder-loop": Rule("a device loop does not sit inside nl.no_reorder", f"{_LOOPS}; {_NL}"),
        "depends-on": Rule("depends_on names instructions of the same program and loop", _ISA),
        "schedule-name": Rule("with_schedule names instructions by the name= of a call", "NKI scheduling guide"),
    },
    "Memory": {
        "shape-type": Rule("shapes, dims and patterns hold integers known while the kernel is traced", _NL),
        "shape-empty": Rule("a tensor has an element", _NL),
        "tile-rank": Rule("an on-chip tensor has a partition and a free axis", _NL),
        "buffer-type": Rule("buffer= is nl.sbuf, nl.psum or a region of HBM, not its name", f"{_MIGRATION} 0.3"),
        "constant-dtype": Rule("nl.shared_constant takes the dtypes the reference lists", _NL),
        "sbuf-capacity": Rule(
            "tiles that live at one time fit into SBUF", f"{_ARCH1}; {_ARCH2}; {_SIMULATOR}",
            "trn1: 192 KiB a partition; trn2: 224; trn3: 256",
        ),
        "psum-capacity": Rule("PSUM tiles that live at one time fit into its 8 banks", f"{_ARCH1}; {_SIMULATOR}"),
        "address": Rule("address= keeps a tile inside its memory", f"{_NL}; {_MIGRATION} 0.3"),
        "address-overlap": Rule("tiles pinned by address= overlap only while one of them is not live", _SIMULATOR),
        "unwritten-read": Rule("no result, address or register depends on bytes that nothing wrote", _SIMULATOR),
        "unwritten-output": Rule("every byte of an output is written", _SIMULATOR),
        "output-buffer": Rule("outputs live in nl.shared_hbm", f"{_MIGRATION} 0.3"),
        "return-type": Rule("a kernel returns a tensor or a tuple of tensors", _GUIDE),
    },
    "Launches, cores and ranks": {
        "lnc": Rule("two cores are launched on chips with logical cores of two", "Neuron LNC guide", "trn1"),
        "nested-jit": Rule("a kernel called inside a kernel runs on its caller's cores", _MIGRATION),
        "platform-target": Rule("a kernel decorated for one chip runs on that chip", f"{_MIGRATION} 0.3"),
        "grid-axis": Rule("a launch grid has one axis", _NL),
        "lnc-divergence": Rule("the programs of a launch allocate the same shared tensors in the same order", _ISA),
        "barrier-cores": Rule("core_barrier joins cores 0 and 1 of a launch on two", _ISA, "trn2, trn3"),
        "sendrecv-rank": Rule("sendrecv runs between cores 0 and 1 of a launch on two", _ISA, "trn2, trn3"),
        "sendrecv-extent": Rule("sendrecv moves one shape and dtype", _ISA, "trn2, trn3"),
        "sendrecv-pair": Rule("both cores of a sendrecv agree on what is moved", _ISA, "trn2, trn3"),
        "gpsimd-dma-limit": Rule(
            "sendrecv by gpsimd_dma moves at most 1024, 512 or 256 bytes a partition, by width", _ISA, "trn2, trn3"
        ),
        "deadlock": Rule("programs and ranks that wait for each other meet", _ISA),
        "race": Rule("two programs touch the same bytes of HBM in an order, if one of them writes", _ISA),
        "replica-group": Rule("replica groups are lists of ranks that do not overlap, the caller's among them", _CC),
        "collective-tensors": Rule("a collective takes as many sources as destinations, in one memory", _CC),
        "collective-extent": Rule("a collective keeps the dtype and gives the shape that its operation makes", _CC),
        "collective-dim": Rule("a collective splits or joins a dim that its memory allows", _CC),
        "collective-channels": Rule("channels are numbered from 0, with a tensor for each", _CC),
        "collective-metadata": Rule("metadata of a variable-length collective has its rows and stays as it was", _CC),
        "collective-prepare": Rule("each prepare is triggered once, before the next", _CC, versions="0.7"),
    },
}  # fmt: skip
RULES: dict[str, Rule] = {id: rule for area in BOOK.values() for id, rule in area.items()}
