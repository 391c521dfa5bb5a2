"""The linter: what an NKI version or a chip will refuse, found in a kernel's text; it never imports what it looks at.

Each rule is one function in RULES. Calls whose operands the text fixes are judged by the simulator's rules themselves.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kernels_neuron.arch import CHIPS
from kernels_neuron.errors import UsageError
from kernels_neuron.tables import unknown

from . import dataflow, loops, subset, versions  # noqa: F401  they fill RULES
from .finding import Finding
from .known import refused_calls
from .rule import RULES, Rule
from .silence import NO_REASON, silences, without_reason, without_silenced
from .simulator import simulator_rules
from .source import Source
from .target import VERSIONS, Target

__all__ = [
    "FILE_RULES",
    "RULES",
    "VERSIONS",
    "Finding",
    "Rule",
    "Selection",
    "Target",
    "lint",
    "lint_file",
    "rule_table",
    "shown_path",
    "simulator_rules",
]

UNREADABLE = "NKI001"
# about a file as a whole: these hold for every version and chip and cannot be silenced in the file
FILE_RULES = {
    UNREADABLE: ("file that is not Python", "error", "write it in the syntax of the Python that runs this command"),
    NO_REASON: ("silencing comment without a reason", "warning", "write # lint: ignore[RULE] why this is right"),
}


class Selection:
    """Which rules are looked at: by id, by the start of an id ("NKI3"), or by a name of the simulator's."""

    def __init__(self, select: Sequence[str] = (), ignore: Sequence[str] = ()) -> None:
        words = (*select, *ignore)
        known = [*FILE_RULES, *RULES, *simulator_rules()] if words else []
        for word in words:
            if not any(_names(word, rule) for rule in known):
                raise UsageError(unknown("rule", word, known))
        self.select = tuple(select)
        self.ignore = tuple(ignore)

    def __contains__(self, rule: str) -> bool:
        chosen = not self.select or any(_names(word, rule) for word in self.select)
        return chosen and not any(_names(word, rule) for word in self.ignore)


def _names(word: str, rule: str) -> bool:
    return rule == word or (word.startswith("NKI") and rule.startswith(word))


def lint(
    paths: Iterable[str | Path], target: Target | None = None, selection: Selection | None = None
) -> list[Finding]:
    """What is found in files, and in the .py files of folders, in the order of path and line.

    Raises UsageError for a path that is not there.
    """
    found: list[Finding] = []
    for path in files(paths):
        found += lint_file(path, target or Target.of(), selection)
    return found


def files(paths: Iterable[str | Path]) -> list[Path]:
    """The files that paths stand for, each once; hidden folders and caches are left out."""
    found: dict[Path, None] = {}
    for each in map(Path, paths):
        if each.is_dir():
            inside = [path for path in sorted(each.rglob("*.py")) if not _hidden(path.relative_to(each))]
            found.update(dict.fromkeys(path for path in inside if path.is_file()))
        elif each.exists():
            found[each] = None
        else:
            raise UsageError(f"there is no {each}", hint="give a .py file or a folder with some")
    return list(found)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") or part == "__pycache__" for part in path.parts)


def lint_file(path: Path, target: Target, selection: Selection | None = None) -> list[Finding]:
    """What is found in one file, in the order of its lines."""
    selection = selection or Selection()
    shown = shown_path(path)
    try:
        source = Source.read(path, shown)
    except (SyntaxError, ValueError) as error:
        found = [_unreadable(shown, error)]
    except (RecursionError, MemoryError):
        found = [Finding(shown, 0, 0, UNREADABLE, "error", "nests deeper than Python's parser goes", None)]
    else:
        comments = silences(source.text)
        found = [*without_silenced(_findings(source, target, selection), comments), *without_reason(shown, comments)]
    return sorted(each for each in dict.fromkeys(found) if each.rule in selection)


def shown_path(path: Path) -> str:
    """A path as findings print it: relative to the current folder where it lies below it."""
    return os.path.relpath(path) if path.resolve().is_relative_to(Path.cwd()) else str(path)


def rule_table() -> list[dict[str, str]]:
    """Every rule of the linter as `lint --rules` prints it."""
    of_files = [
        {"id": id, "severity": severity, "nki": "all", "chips": "all", "title": title, "why": "", "fix": fix}
        for id, (title, severity, fix) in FILE_RULES.items()
    ]
    of_code = [
        {
            "id": each.id,
            "severity": each.severity,
            "nki": each.versions,
            "chips": "all" if set(each.chips) == set(CHIPS) else ", ".join(each.chips),
            "title": each.title,
            "why": each.why,
            "fix": each.fix,
        }
        for each in sorted(RULES.values(), key=lambda rule: rule.id)
    ]
    return of_files + of_code


def _findings(source: Source, target: Target, selection: Selection) -> Iterator[Finding]:
    for each in RULES.values():
        if each.id in selection and each.applies(target):
            yield from each.findings(source, target)
    yield from refused_calls(source, target)


def _unreadable(shown: str, error: SyntaxError | ValueError) -> Finding:
    line, column = getattr(error, "lineno", None) or 0, getattr(error, "offset", None) or 0
    message = getattr(error, "msg", None) or str(error)
    return Finding(shown, line, column, UNREADABLE, "error", f"not Python: {message}", FILE_RULES[UNREADABLE][2])
