"""docs/lint.md is what its script writes, and no rule is missing, neither of the linter nor of the simulator."""

import ast
from pathlib import Path

import pytest

from kernels_neuron.lint import FILE_RULES, RULES, simulator_rules

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script(page_script):
    return page_script("lint")


def test_the_lint_page_is_current(script):
    assert (ROOT / "docs" / "lint.md").read_text() == script.page(), "run python docs/lint.py"


def test_the_lint_page_names_every_rule(script):
    page = script.page()
    assert all(f"| {rule} |" in page for rule in (*RULES, *FILE_RULES))


def test_the_simulators_rules_are_all_that_its_sources_name():
    names = set()
    for path in (ROOT / "kernels_neuron" / "sim").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "rule" and isinstance(node.value, ast.Constant):
                names.add(node.value.value)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "fail":
                names |= {each.value for each in node.args[:1] if isinstance(each, ast.Constant)}
    assert names - set(simulator_rules()) == set()
    assert {"start-partition", "unwritten-read", "sbuf-capacity", "race", "not-simulated"} <= set(simulator_rules())
