"""docs/coverage.md is what its script writes, and every instruction on it has a rule of its own or says so."""

from pathlib import Path

import pytest

from kernels_neuron.sim.isa import COLLECTIVES, TABLE

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def coverage(page_script):
    return page_script("coverage")


def test_the_coverage_page_is_current(coverage):
    assert (ROOT / "docs" / "coverage.md").read_text() == coverage.page(), "run python docs/coverage.py"


def test_the_coverage_page_names_every_instruction_and_collective(coverage):
    page = coverage.page()
    assert all(f"`{name}(" in page for name in (*TABLE, *COLLECTIVES))


def test_rules_are_counted_where_tests_break_them(coverage):
    rules = coverage.tested_rules()
    assert "gather-piece" in rules["local_gather"] and "pattern" in rules["iota"]
