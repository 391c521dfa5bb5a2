"""Constants come from somewhere: every price formula says where, and a number without a source fails here."""

import ast
import inspect
import re

import pytest

from kernels_neuron.cost import cores, deps, dma, plan, ports, queues, switches, throttle, timeline
from kernels_neuron.sim.isa import prices

TAG = re.compile(r"\[(?:arch2|arch3|arch4|isa|dma|trace|read)\]|assumed", re.IGNORECASE)
TREE = ast.parse(inspect.getsource(prices))
LINES = inspect.getsource(prices).splitlines()
FORMULAS = [
    node
    for node in TREE.body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name not in ("facts", "matmul")
]


def numbers(node):
    """(line, value) of the numbers under a node; 0 and 1 are no constants of the machine."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and type(each.value) in (int, float) and each.value not in (0, 1):
            yield each.lineno, each.value


@pytest.mark.parametrize("formula", FORMULAS, ids=lambda node: node.name)
def test_a_price_formula_names_its_source(formula):
    comments = " ".join(LINES[formula.lineno - 1 : formula.end_lineno])
    assert TAG.search(ast.get_docstring(formula) or "") or TAG.search(comments), f"{formula.name} has no source"


def test_every_price_comes_from_such_a_formula():
    known = {node.name for node in FORMULAS}
    assert {formula.__name__ for formula in prices._FORMULAS.values()} <= known


def test_numbers_outside_the_formulas_have_a_source_on_their_line():
    inside = {line for node in TREE.body if isinstance(node, ast.FunctionDef) for line, _ in numbers(node)}
    loose = {line for line, _ in numbers(TREE)} - inside
    for line in loose:
        text = LINES[line - 1]
        # how many answers are kept is no fact of a chip
        assert TAG.search(text) or "_MAX_REMEMBERED" in text, f"prices.py:{line}: {text.strip()}"


TIMELINE = [timeline, throttle, switches, plan, queues, ports, cores, deps, dma]


@pytest.mark.parametrize("module", TIMELINE, ids=lambda module: module.__name__.split(".")[-1])
def test_the_timeline_itself_holds_no_constants_of_the_machine(module):
    """Numbers of the machine live in arch.py: here only counts, units and rates of a half remain."""
    allowed = {0.5, 2, 4, 5, 8, 1e3, 1e6}
    # where a grid of bytes pays and queues of a key, what of a sum is rounding, when phases tell apart
    allowed |= {deps: {3, 16, 24, 256}, dma: {1e-6, 1e-9}, timeline: {20_000, 1e-3}}.get(module, set())
    found = {value for _, value in numbers(ast.parse(inspect.getsource(module)))}
    assert found <= allowed, f"{module.__name__} has {sorted(found - allowed)}"
