"""The journal of a search: a line per candidate priced, so that an interrupted search goes on where it was."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernels_neuron.artifact import Metadata
from kernels_neuron.tiles import TUNED, Tiles

PACKAGE = Path(__file__).parents[1]
# what a price depends on besides the kernel
_MODEL = ("arch.py", "sim", "cost")


@dataclass(frozen=True)
class Price:
    """What one candidate costs in one task: body_us, estimated; or the rule it breaks.

    tiles  None: the table as it ships
    """

    task: str
    tiles: Tiles | None
    body_us: float | None = None
    illegal: str | None = None

    @property
    def key(self) -> str:
        """What names the candidate."""
        return json.dumps([self.task, self.tiles])


def fingerprint(variant: Path) -> str:
    """SHA-256 of all that a price depends on: the kernel's sources but its table of tiles, and the model's."""
    sha = hashlib.sha256()
    for path, digest in sorted(Metadata.read(variant).digest.items()):
        if not path.endswith((f"/{TUNED}", "_ops.py")):  # _ops.py holds the id, which the table changes
            sha.update(f"{path}\0{digest}\n".encode())
    files = [
        path for name in _MODEL for path in ((PACKAGE / name).rglob("*.py") if "." not in name else [PACKAGE / name])
    ]
    for file in sorted(files):
        sha.update(f"{file.relative_to(PACKAGE)}\0{hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return sha.hexdigest()


class Journal:
    """Prices in a file of JSON lines. Those made from other sources, or half written, do not count.

    made_from  the fingerprint of what is priced now
    """

    def __init__(self, path: Path, made_from: str) -> None:
        self.path = path
        self.made_from = made_from
        self.prices: dict[str, Price] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
            price = self._read(line)
            if price is not None:
                self.prices[price.key] = price

    def _read(self, line: str) -> Price | None:
        try:
            row = json.loads(line)
        except ValueError:
            return None  # the line during which a search was killed
        if row.pop("made_from") != self.made_from:
            return None
        return Price(**row)

    def add(self, prices: Iterable[Price]) -> None:
        """Note prices, on disk before this returns."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            for price in prices:
                self.prices[price.key] = price
                file.write(json.dumps({"made_from": self.made_from, **vars(price)}) + "\n")
