"""RULES: every rule of the linter by id, filled by the `rule` decorator, read by the linter, its docs and SARIF."""

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kernels_neuron.arch import CHIPS

from .finding import Finding, Severity
from .source import Source
from .target import VERSIONS, Target, Version, parse_version, spell


@dataclass(frozen=True)
class Hit:
    """What a rule found: where, in words, and what to do about it where the rule's `fix` does not say it."""

    node: ast.AST
    message: str
    hint: str | None = None


Check = Callable[[Source, Target], Iterable[Hit]]


@dataclass(frozen=True)
class Rule:
    """One rule.

    since, until  the first NKI version it holds for, and the first it no longer does
    why           what happens to who breaks it, with the source in brackets
    """

    id: str
    title: str
    severity: Severity
    why: str
    fix: str
    since: Version
    until: Version | None
    chips: tuple[str, ...]
    check: Check

    def applies(self, target: Target) -> bool:
        """Whether the rule says anything about this version and these chips."""
        if target.version < self.since or (self.until is not None and target.version >= self.until):
            return False
        return all(arch.name in self.chips for arch in target.chips)

    @property
    def versions(self) -> str:
        """ "0.3 to 0.6", "from 0.3 on", "all"."""
        first, last = spell(self.since), VERSIONS[-1]
        if self.until is not None:
            last = VERSIONS[VERSIONS.index(spell(self.until)) - 1]
            return first if first == last else f"{first} to {last}"
        return "all" if first == VERSIONS[0] else first if first == last else f"from {first} on"

    def findings(self, source: Source, target: Target) -> Iterable[Finding]:
        """What the rule finds in one file."""
        for hit in self.check(source, target):
            line, column = getattr(hit.node, "lineno", 1), getattr(hit.node, "col_offset", 0) + 1
            yield Finding(source.path, line, column, self.id, self.severity, hit.message, hit.hint or self.fix)


RULES: dict[str, Rule] = {}


def rule(
    id: str,
    title: str,
    severity: Severity,
    *,
    why: str,
    fix: str,
    since: str = "beta",
    until: str | None = None,
    chips: tuple[str, ...] = tuple(CHIPS),
) -> Callable[[Check], Check]:
    """Enter a check in RULES."""

    def enter(check: Check) -> Check:
        last = parse_version(until) if until else None
        RULES[id] = Rule(id, title, severity, why, fix, parse_version(since), last, chips, check)
        return check

    return enter
