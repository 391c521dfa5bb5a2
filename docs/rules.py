"""Writes docs/rules.md: every rule that a run refuses a kernel for, its source, and the tests that prove it.

Run it after a change of a rule: `python docs/rules.py`. A test fails while the page is not what this would write.
"""

import ast
import functools
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "rules.md"
TESTS = ROOT / "tests" / "sim"
sys.path.insert(0, str(ROOT))

from kernels_neuron.sim.rulebook import BOOK  # noqa: E402

HEAD = """# Rules

Written by `python docs/rules.py` from the simulator's table of rules.

A run ends with `KernelError` where a kernel breaks one of these; the error carries the id as `error.rule`, and
prints it below the kernel's line. `kernels-neuron lint --select ID` looks for one of them in calls whose operands a
text fixes.

Each rule is proved by pairs of tests: an act that is legal, and its twin, which differs in what breaks this rule and is
refused with the rule's id. The last column says in which files of `tests/sim/` they are, and for which instructions."""


@functools.cache
def pairs() -> dict[str, dict[str, set[str]]]:
    """Rule -> file of tests -> the instructions it is broken on, read off Pair(name, rule, ..) and Twin(rule, ..)."""
    found: dict[str, dict[str, set[str]]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            called = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
            if called not in ("Pair", "Twin", "Launch"):
                continue
            words = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            rule, names = (words[1], {words[0]}) if called == "Pair" else (words[0], set())
            found.setdefault(rule, {}).setdefault(path.relative_to(TESTS).as_posix(), set()).update(names)
    return found


def page() -> str:
    """The whole page."""
    proved, parts = pairs(), [HEAD]
    for area, rules in BOOK.items():
        lines = ["| rule | what is legal | chips | NKI | source | pairs |", "|---|---|---|---|---|---|"]
        for id, rule in rules.items():
            cells = (f"`{id}`", rule.says, rule.chips, rule.versions, rule.source, _files(proved.get(id, {})))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        parts += [f"## {area}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def _files(files: dict[str, set[str]]) -> str:
    return "; ".join(f"{file}{': ' * bool(names)}{', '.join(sorted(names))}" for file, names in files.items())


if __name__ == "__main__":
    PAGE.write_text(page())
