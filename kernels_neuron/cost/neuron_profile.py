"""Reading the JSON that the Neuron profiler writes: the instructions of one core, and when its body began and ended."""

import gzip
import json
import re
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from kernels_neuron.errors import UsageError

PSUM_ADDRESS = 0x2000000  # addresses below are bytes of an SBUF partition
_ENGINES = {"tensor": "tensor", "tensormatrix": "tensor", "vector": "vector", "scalar": "scalar"}
_ENGINES |= {"gpsimd": "gpsimd", "sync": "sync"}
_NEEDED = ("instruction", "dma")
_FIELDS = ("label", "opcode", "operands", "pc", "timestamp", "duration", "bir_instruction_name", "subgraph")
_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8e4": "float8_e4m3", "fp8e5": "float8_e5m2"}
_ACCESS = re.compile(r"(src\d?|dst\d?)=(?:(\w+)@)?(0x[0-9a-f]+)\[([-\d,]+)\]\[([\d,]+)\]")
_WAIT = re.compile(r"S\[(\d+)\] \([^)]*\)>=(\d+)")
_UPDATE = re.compile(r"S\[(\d+)\] \([^)]*\)(?:\+\+|\+=(\d+))@complete")
_PATTERN = re.compile(r"(src|dst)_pattern=\[([-\d,]+)\]\[([\d,]+)\]")


@dataclass(frozen=True)
class Access:
    """One operand of an instruction: dtype by its NKI name or "", memory, elements per partition, innermost stride."""

    role: str
    dtype: str
    memory: str
    count: int
    stride: int


@dataclass(frozen=True)
class Executed:
    """One instruction as the profiler saw it. Times in ns from the start of the profile.

    waits    (semaphore, value) that all have to hold before it starts
    updates  (semaphore, increment) when it completes; of a DMA when its data has arrived
    """

    name: str
    engine: str
    opcode: str
    operands: str
    start: float
    end: float
    accesses: tuple[Access, ...]
    waits: tuple[tuple[str, int], ...]
    updates: tuple[tuple[str, int], ...]
    row: dict[str, Any]

    @property
    def is_dma(self) -> bool:
        """Whether it triggers a transfer."""
        return self.opcode.startswith("DMA_")

    def number(self, key: str, default: int) -> int:
        """The integer after `key=` in the operands."""
        found = re.search(rf"\b{key}=(\d+)", self.operands)
        return int(found[1]) if found else default

    def text(self, key: str) -> str:
        """The word after `key=` in the operands, or ""."""
        found = re.search(rf"\b{key}=(\S+)", self.operands)
        return found[1] if found else ""

    def pattern_rows(self, side: str) -> int:
        """Elements of a DMA's access pattern on one side, "src" or "dst"."""
        for name, _, counts in _PATTERN.findall(self.operands):
            if name == side:
                return prod(map(int, counts.split(",")))
        return 1


@dataclass(frozen=True)
class NeuronProfile:
    """What one core did. `queues`: engine -> instructions in program order. `began` to `ended` is the body.

    window_at  a border of the PE throttle's windows, None where the throttle never changed
    pe_ghz     TensorE clock
    """

    path: Path
    queues: dict[str, list[Executed]]
    began: float
    ended: float
    window_at: float | None
    pe_ghz: float

    @property
    def body_us(self) -> float:
        """From the first DMA trigger to the last data packet."""
        return (self.ended - self.began) / 1e3


def read_profile(path: Path | str) -> NeuronProfile:
    """The profile in a .json or .json.gz file, of the first physical core that ran kernel instructions.

    Refuses a file that is not JSON, or lacks a key or field that the replay needs; the message names it.
    """
    path = Path(path)
    data = _load(path)
    missing = [key for key in _NEEDED if not isinstance(data.get(key), list)]
    if missing:
        raise _not_a_profile(path, f"it has no list {', '.join(map(repr, missing))}")
    try:
        return _profile(path, data)
    except KeyError as error:
        raise _not_a_profile(path, f"a row has no field {error}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise _not_a_profile(path, f"a field has another form: {error}") from None


def _load(path: Path) -> dict[str, Any]:
    try:
        raw = path.read_bytes()
        data = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except (FileNotFoundError, IsADirectoryError):
        raise UsageError(f"there is no file {path}") from None
    except (EOFError, OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise _not_a_profile(path, str(error)) from None
    if not isinstance(data, dict):
        raise _not_a_profile(path, f"it holds a JSON {type(data).__name__}, not an object")
    return data


def _not_a_profile(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} is not a Neuron profile: {why}", hint="write one with the profiler's --output-format json"
    )


def _profile(path: Path, data: dict[str, Any]) -> NeuronProfile:
    # prologue, barriers and epilogue have no name of the compiler's
    rows = [row for row in data["instruction"] if row.get("bir_instruction_name")]
    cores = sorted({str(row["subgraph"]) for row in rows if str(row["opcode"]).startswith("DMA_")})
    if not cores:
        raise _not_a_profile(path, "no instruction of a kernel starts a DMA transfer")
    core = cores[0]
    queues: dict[str, list[Executed]] = {}
    for row in sorted((row for row in rows if row["subgraph"] == core), key=lambda row: int(row["pc"])):
        done = _executed(path, row)
        queues.setdefault(done.engine, []).append(done)
    began = min(done.start for queue in queues.values() for done in queue if done.is_dma)
    packets = [row for row in data["dma"] if row["subgraph"] == core and str(row["queue_type"]).endswith("dynamic")]
    # the 4-byte packet that closes a transfer is its semaphore, not data
    ends = [float(row["timestamp"]) + float(row["duration"]) for row in packets if int(row["transfer_size"]) != 4]
    if not ends:
        raise _not_a_profile(path, f"core {core} has no data packets in 'dma'")
    windows = [float(row["timestamp"]) for row in data.get("ham", []) if row.get("subgraph") == core]
    meta = (data.get("metadata") or [{}])[0]
    return NeuronProfile(
        path, queues, began, max(ends), min(windows, default=None), float(meta.get("pe_clock_freq", 2.4))
    )


def _executed(path: Path, row: dict[str, Any]) -> Executed:
    for field in _FIELDS:
        row[field]  # a KeyError names what is missing
    engine = _ENGINES.get(str(row["label"]).lower())
    if engine is None:
        raise _not_a_profile(path, f"no engine is called {row['label']!r}")
    operands, start = str(row["operands"]), float(row["timestamp"])
    updates = [(number, int(by or 1)) for number, by in _UPDATE.findall(operands)]
    owned = re.search(r"\bsemaphore=(\d+) sem_increment=(\d+)", operands)
    if owned:
        updates.append((owned[1], int(owned[2])))
    return Executed(
        name=str(row["bir_instruction_name"]),
        engine=engine,
        opcode=str(row["opcode"]),
        operands=operands,
        start=start,
        end=start + float(row["duration"]),
        accesses=tuple(_access(*found) for found in _ACCESS.findall(operands)),
        waits=tuple((number, int(value)) for number, value in _WAIT.findall(operands)),
        updates=tuple(updates),
        row=row,
    )


def _access(role: str, dtype: str, address: str, strides: str, counts: str) -> Access:
    memory = "psum" if int(address, 16) >= PSUM_ADDRESS else "sbuf"
    steps, sizes = list(map(int, strides.split(","))), list(map(int, counts.split(",")))
    # the innermost dimension that has more than one element decides whether the operand is contiguous
    stride = next((step for step, size in zip(steps, sizes, strict=False) if size > 1), 1)
    return Access(role, _DTYPES.get(dtype, dtype), memory, prod(sizes), stride)
