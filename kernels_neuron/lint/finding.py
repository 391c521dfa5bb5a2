"""Findings: one place in a file that breaks one rule."""

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, order=True)
class Finding:
    """One break of one rule. `line` and `column` count from 1; 0 is a finding about the whole file.

    rule      "NKI103", or the name of a rule of the simulator, such as "start-partition"
    severity  "error": a compiler or a chip refuses it or computes something else; "warning": most likely not meant;
              "note": legal, and worth knowing
    """

    path: str
    line: int
    column: int
    rule: str
    severity: Severity
    message: str
    hint: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}:{self.column}" if self.line else self.path
        return f"{where}: {self.rule} {self.message}"

    def to_json(self) -> dict[str, Any]:
        """The finding as `lint --json` prints it."""
        return asdict(self)
