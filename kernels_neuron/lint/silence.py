"""Comments that silence a rule, `# lint: ignore[NKI303] one buffer on purpose`, on its line or alone above it."""

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .finding import Finding

_COMMENT = re.compile(r"#\s*lint:\s*ignore\[(?P<rules>[^\]]*)\]\s*(?P<reason>.*)")
NO_REASON = "NKI002"


@dataclass(frozen=True)
class Silence:
    """One such comment: the line it speaks of, the rules it names, why."""

    line: int
    rules: tuple[str, ...]
    reason: str
    at: int
    column: int


def silences(text: str) -> list[Silence]:
    """The comments of a file; none where it cannot be split into tokens."""
    found = []
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return []
    code = {token.start[0] for token in tokens if token.type not in _EMPTY}
    for token in tokens:
        match = _COMMENT.search(token.string) if token.type == tokenize.COMMENT else None
        if match:
            line, column = token.start
            # alone on its line, it speaks of the next one with code
            speaks_of = line if line in code else min((each for each in code if each > line), default=line)
            rules = tuple(rule.strip() for rule in match["rules"].split(",") if rule.strip())
            found.append(Silence(speaks_of, rules, match["reason"].strip(), line, column + 1))
    return found


_EMPTY = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
)  # fmt: skip


def without_silenced(findings: Iterable[Finding], comments: list[Silence]) -> Iterator[Finding]:
    """The findings that no comment with a reason silences."""
    for finding in findings:
        for comment in comments:
            if comment.reason and comment.line == finding.line and finding.rule in comment.rules:
                break
        else:
            yield finding


def without_reason(path: str, comments: list[Silence]) -> Iterator[Finding]:
    """A finding for each comment that gives no reason, or names no rule."""
    for each in comments:
        if not each.reason or not each.rules:
            what = "gives no reason" if each.rules else "names no rule"
            message = f"the comment {what}, and silences nothing"
            hint = "write # lint: ignore[RULE] why this is right"
            yield Finding(path, each.at, each.column, NO_REASON, "warning", message, hint)
