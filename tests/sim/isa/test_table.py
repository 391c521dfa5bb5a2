"""The table is complete: every instruction has its tests, every rule a pair, every price a formula."""

import ast
import functools
import inspect
from pathlib import Path

import pytest

from kernels_neuron.sim.isa import COLLECTIVES, TABLE
from kernels_neuron.sim.isa.prices import PRICES

SIM = Path(inspect.getfile(PRICES["memset"])).parent.parent
TESTS = Path(__file__).parent.parent
# instructions whose price is composed of parts rather than looked up in PRICES
COMPOSED = {"nc_matmul", "dma_copy", "dma_transpose", "dma_compute", "nc_matmul_mx"}


@functools.cache
def sources():
    """The text of every test of the simulator but this one."""
    return [path.read_text() for path in TESTS.rglob("test_*.py") if path.name != Path(__file__).name]


@functools.cache
def functions():
    """The names of their functions."""
    return {
        node.name for source in sources() for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)
    }


def rules():
    """Ids of every rule that the simulator's sources refuse with."""
    for path in SIM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            first = node.args[0] if node.args else None
            if getattr(node.func, "id", "") == "fail" and isinstance(first, ast.Constant):
                yield first.value
            for keyword in node.keywords:
                if keyword.arg == "rule" and isinstance(keyword.value, ast.Constant):
                    yield keyword.value.value


@pytest.mark.parametrize("name", TABLE)
def test_every_instruction_is_compared_with_numpy_and_priced(name):
    assert f"test_{name}_matches_numpy" in functions()
    assert f"test_{name}_price" in functions()


@pytest.mark.parametrize("name", COLLECTIVES)
def test_every_collective_is_compared_with_numpy(name):
    whole = name.replace("_prepare", "_in_halves").replace("_trigger", "_in_halves")
    assert f"test_{whole}_matches_numpy" in functions()


@pytest.mark.parametrize("rule", sorted(set(rules())))
def test_every_rule_has_a_test(rule):
    assert any(f'"{rule}"' in source for source in sources())


@pytest.mark.parametrize("name", TABLE)
def test_every_instruction_has_a_price(name):
    assert name in PRICES or name in COMPOSED


@pytest.mark.parametrize("name", [*TABLE, *COLLECTIVES])
def test_every_instruction_says_what_it_does_and_where_that_is_written(name):
    text = (TABLE | COLLECTIVES)[name].body.__doc__
    assert text and "Source:" in text


def test_signatures_take_a_name_last_and_no_core():
    for name, entry in TABLE.items():
        parameters = list(entry.signature.parameters)
        assert "core" not in parameters
        assert parameters[-1] == "name" or name.startswith("register_"), name
