"""SARIF output against what the 2.1.0 schema asks of the objects that it uses: required, allowed, of which kind."""

import json

import pytest

from kernels_neuron.lint import Finding
from kernels_neuron.lint.sarif import sarif

LEVELS = ("none", "note", "warning", "error")
TEXT = {"required": {"text"}, "text": str}
# object -> its required properties, and every allowed one we write with its kind: a type, a list of objects, an object
SCHEMA = {
    "log": {"required": {"version", "runs"}, "$schema": str, "version": ("2.1.0",), "runs": ["run"]},
    "run": {
        "required": {"tool"},
        "tool": "tool",
        "columnKind": ("utf16CodeUnits", "unicodeCodePoints"),
        "results": ["result"],
    },
    "tool": {"required": {"driver"}, "driver": "toolComponent"},
    "toolComponent": {"required": {"name"}, "name": str, "version": str, "rules": ["reportingDescriptor"]},
    "reportingDescriptor": {
        "required": {"id"},
        "id": str,
        "shortDescription": "text",
        "fullDescription": "text",
        "help": "text",
        "defaultConfiguration": "reportingConfiguration",
        "properties": dict,
    },
    "reportingConfiguration": {"required": set(), "level": LEVELS},
    "result": {
        "required": {"message"},
        "ruleId": str,
        "ruleIndex": int,
        "level": LEVELS,
        "message": "text",
        "locations": ["location"],
    },
    "location": {"required": set(), "physicalLocation": "physicalLocation"},
    "physicalLocation": {
        "required": {"artifactLocation"},
        "artifactLocation": "artifactLocation",
        "region": "region",
    },
    "artifactLocation": {"required": set(), "uri": str},
    "region": {"required": {"startLine"}, "startLine": int, "startColumn": int},
    "text": TEXT,
}


def check(value, kind, where="log"):
    """Every property of `value` is one that the schema allows, of its kind, and none that it requires is missing."""
    allowed = SCHEMA[kind]
    assert allowed["required"] <= set(value), where
    for name, inner in value.items():
        at = f"{where}.{name}"
        assert name in allowed, at
        expected = allowed[name]
        if isinstance(expected, list):
            for position, each in enumerate(inner):
                check(each, expected[0], f"{at}[{position}]")
        elif isinstance(expected, str):
            check(inner, expected, at)
        elif isinstance(expected, tuple):
            assert inner in expected, at
        else:
            assert isinstance(inner, expected), at
            assert expected is not int or inner >= (1 if kind == "region" else 0), at


FINDINGS = [
    Finding("src/a b.py", 3, 5, "NKI103", "error", "nl.arange is gone since NKI 0.1", "use slices or nl.ds"),
    Finding("/opt/k.py", 7, 1, "start-partition", "error", "tensor_copy takes src at 0, 32, 64, 96"),
    Finding("k.py", 0, 0, "NKI001", "error", "not Python: invalid syntax"),
    Finding("k.py", 2, 1, "NKI303", "note", "t is loaded anew"),
]


def test_a_log_has_the_shape_that_the_schema_asks_for():
    check(json.loads(json.dumps(sarif(FINDINGS))), "log")


def test_a_log_without_findings_is_valid_too():
    check(sarif([]), "log")
    assert sarif([])["runs"][0]["results"] == []


@pytest.mark.parametrize("broken", [{"version": "2.1.0"}, {"version": "2.0", "runs": []}, {"runs": [], "extra": 1}])
def test_the_check_itself_refuses_what_the_schema_refuses(broken):
    with pytest.raises(AssertionError):
        check(broken, "log")


def test_each_result_points_at_its_rule_and_its_place():
    run = sarif(FINDINGS)["runs"][0]
    rules = run["tool"]["driver"]["rules"]
    for finding, result in zip(FINDINGS, run["results"], strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.rule
        assert result["level"] == finding.severity
    places = [result["locations"][0]["physicalLocation"] for result in run["results"]]
    assert [place["artifactLocation"]["uri"] for place in places] == [
        "src/a%20b.py",
        "file:///opt/k.py",
        "k.py",
        "k.py",
    ]
    assert places[0]["region"] == {"startLine": 3, "startColumn": 5} and "region" not in places[2]


def test_a_rule_of_the_simulator_says_what_is_legal_and_who_says_so():
    log = sarif([Finding("kernel.py", 3, 1, "start-partition", "error", "said")])
    (rule,) = log["runs"][0]["tool"]["driver"]["rules"]
    assert rule["shortDescription"]["text"].startswith("more than 64 partitions start at 0")
    assert rule["fullDescription"]["text"].endswith("[Trainium and Inferentia2 architecture guide]")
    assert rule["properties"] == {"chips": "all", "nki": "all"}
