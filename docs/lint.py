"""Writes the table of rules in docs/lint.md.

Run it after a change of a rule: `python docs/lint.py`. A test fails while the table is not what this would write.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "lint.md"
sys.path.insert(0, str(ROOT))

from kernels_neuron.lint import rule_table  # noqa: E402

_TABLE = re.compile(r"(?<=`python docs/lint.py` -->\n).*?(?=<!-- end -->)", re.DOTALL)
_HEADS = ("id", "severity", "nki", "chips", "title", "why", "fix")


def page() -> str:
    """The page with the table as it should be."""
    lines = [f"| {' | '.join(_HEADS)} |", "|" + "---|" * len(_HEADS)]
    lines += [f"| {' | '.join(_cell(row[head]) for head in _HEADS)} |" for row in rule_table()]
    table = "\n".join(lines) + "\n"
    return _TABLE.sub(lambda match: table, PAGE.read_text())


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")


if __name__ == "__main__":
    PAGE.write_text(page())
