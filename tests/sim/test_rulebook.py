"""The table of rules holds every rule the simulator refuses with, each proved by a legal act and its broken twin."""

from pathlib import Path

import pytest

from kernels_neuron.lint import simulator_rules
from kernels_neuron.sim.rulebook import BOOK, RULES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script(page_script):
    return page_script("rules")


def test_the_table_holds_the_rules_that_the_sources_name_and_no_others():
    assert set(RULES) == set(simulator_rules())
    assert sum(map(len, BOOK.values())) == len(RULES)


def test_a_rule_says_what_is_legal_and_who_says_so():
    for id, rule in RULES.items():
        assert rule.says and rule.source and rule.chips and rule.versions, id
        assert not rule.says.endswith("."), id


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_a_legal_act_and_a_twin_that_breaks_it(script, rule):
    assert script.pairs().get(rule), f"write a Pair, a Twin or a Launch for {rule}"


def test_no_pair_is_about_a_rule_that_does_not_exist(script):
    assert set(script.pairs()) <= set(RULES)


def test_the_page_of_rules_is_current(script):
    assert (ROOT / "docs" / "rules.md").read_text() == script.page(), "run python docs/rules.py"
