"""Findings as SARIF 2.1.0, which code hosts show beside the lines.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0.
"""

from collections.abc import Iterable
from importlib import metadata
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from kernels_neuron.sim.rulebook import RULES as OF_RUNS

from . import FILE_RULES, RULES
from .finding import Finding

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif(findings: Iterable[Finding]) -> dict[str, Any]:
    """One SARIF log with one run; the rules it lists are those that were broken."""
    found = list(findings)
    broken = sorted({each.rule for each in found})
    driver = {
        "name": "kernels-neuron lint",
        "version": metadata.version("kernels-neuron"),
        "rules": [_rule(rule) for rule in broken],
    }
    results = [_result(each, broken.index(each.rule)) for each in found]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(id: str) -> dict[str, Any]:
    if id in RULES:
        rule = RULES[id]
        return {
            "id": id,
            "shortDescription": {"text": rule.title},
            "fullDescription": {"text": rule.why},
            "help": {"text": rule.fix},
            "defaultConfiguration": {"level": rule.severity},
            "properties": {"chips": list(rule.chips), "nki": rule.versions},
        }
    if id in FILE_RULES:
        title, level, fix = FILE_RULES[id]
        return {
            "id": id,
            "shortDescription": {"text": title},
            "help": {"text": fix},
            "defaultConfiguration": {"level": level},
        }
    described: dict[str, Any] = {"id": id, "shortDescription": {"text": id}}
    if id in OF_RUNS:
        of_run = OF_RUNS[id]
        described["shortDescription"] = {"text": of_run.says}
        described["fullDescription"] = {"text": f"{of_run.says} [{of_run.source}]"}
        described["properties"] = {"chips": of_run.chips, "nki": of_run.versions}
    return {**described, "defaultConfiguration": {"level": "error"}}


def _result(finding: Finding, index: int) -> dict[str, Any]:
    text = f"{finding.message}; {finding.hint}" if finding.hint else finding.message
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(finding.path)}}
    if finding.line:
        place["region"] = {"startLine": finding.line, "startColumn": max(1, finding.column)}
    return {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": finding.severity,
        "message": {"text": text},
        "locations": [{"physicalLocation": place}],
    }


def _uri(path: str) -> str:
    pure = PurePath(path)
    return pure.as_uri() if pure.is_absolute() else quote(pure.as_posix())
