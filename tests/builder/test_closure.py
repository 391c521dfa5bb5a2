import ast

import pytest

from kernels_neuron.builder.closure import closure

FILES = {
    "a/__init__.py": "from .ops import a",
    "a/ops.py": "from ..common.checks import x\nfrom .._ops import define_op\ndef f():\n    from .kernel import k",
    "a/kernel.py": "import nki\nfrom ..common.tiles import t",
    "a/lost.py": "",
    "common/__init__.py": "",
    "common/checks.py": "",
    "common/tiles.py": "from . import deeper",
    "common/deeper/__init__.py": "from .leaf import z",
    "common/deeper/leaf.py": "",
    "common/lost.py": "",
}


@pytest.fixture
def trees():
    return {name: ast.parse(text) for name, text in FILES.items()}


def test_closure_follows_imports_inside_functions_and_into_packages(trees):
    assert closure("a/__init__.py", trees) == sorted(set(FILES) - {"a/lost.py", "common/lost.py"})


def test_closure_without_the_kernel_leaves_out_what_only_it_needs(trees):
    assert closure("a/__init__.py", trees, without=("a/kernel.py",)) == [
        "a/__init__.py",
        "a/ops.py",
        "common/__init__.py",
        "common/checks.py",
    ]


def test_packages_on_the_way_are_included():
    trees = {name: ast.parse(text) for name, text in FILES.items()}
    trees["a/ops.py"] = ast.parse("from ..common.deeper.leaf import z")
    assert closure("a/__init__.py", trees) == [
        "a/__init__.py",
        "a/ops.py",
        "common/__init__.py",
        "common/deeper/__init__.py",
        "common/deeper/leaf.py",
    ]
