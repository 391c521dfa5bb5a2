"""What names stand for, whatever a file calls them, and which functions are kernel code."""

import pytest

from kernels_neuron.lint.source import Source


@pytest.mark.parametrize(
    "text",
    [
        "import nki\nnki.language.arange(1)",
        "import nki.language\nnki.language.arange(1)",
        "import nki.language as language\nlanguage.arange(1)",
        "from nki import language as nl\nnl.arange(1)",
        "from nki.language import arange as ar\nar(1)",
        "from nki.language import *\narange(1)",
        "import neuronxcc.nki.language as nl\nnl.arange(1)",
        "from neuronxcc import nki\nnki.language.arange(1)",
        "from neuronxcc.nki import language as nl\nnl.arange(1)",
        "import nki.language as nl\nindices = nl.arange\nindices(1)",
        "def f():\n    import nki.language as nl\n    return nl.arange(1)",
        "import nki.language as nl\nclass C:\n    def arange(self):\n        return nl.arange(1)",
    ],
)
def test_every_spelling_of_a_name_is_the_same_name(lint_text, text):
    assert "NKI103" in {each.rule for each in lint_text(text, header="")}


@pytest.mark.parametrize(
    "text",
    [
        "import nki.language as nl\ndef f(nl):\n    nl.arange(1)",
        "import numpy as nl\nnl.arange(1)",
        "import nki.language as nl\ndef f():\n    nl = object()\n    nl.arange(1)",
        "from .nki import language as nl\nnl.arange(1)",
        "def arange(n): pass\narange(1)",
        "import nki_tools as nki\nnki.language.arange(1)",
    ],
)
def test_other_things_of_the_same_name_are_left_alone(lint_text, text):
    assert lint_text(text, header="") == []


def test_a_try_that_awaits_the_absence_of_a_name_is_left_alone(lint_text):
    text = "try:\n    import neuronxcc.nki as nki\nexcept ImportError:\n    import nki\n"
    assert lint_text(text, header="") == []


def test_kernel_code_is_what_is_launched_what_issues_instructions_and_what_they_call():
    source = Source(
        "k.py",
        "import nki, nki.isa as nisa\n"
        "@nki.jit\ndef kernel(x): helper(x)\n"
        "def helper(x): inner(x)\n"
        "def inner(x): pass\n"
        "def writes(t): nisa.memset(t, 0)\n"
        "def launched(x): pass\n"
        "def host(x): return kernel(x)\n"
        "fast = nki.jit(launched)\n",
    )
    assert [each.name for each in source.kernel_code] == ["kernel", "helper", "inner", "writes", "launched"]
    assert [each.name for each in source.entries] == ["kernel", "launched"]


@pytest.mark.parametrize("decorator", ["nki.jit", "nki.jit()", "nki.jit(mode='x')", "jit", "functools.partial(jit)"])
def test_every_form_of_the_decorator_makes_an_entry(decorator):
    text = f"import functools\nimport nki\nfrom nki import jit\n@{decorator}\ndef kernel(x): pass\n"
    assert [each.name for each in Source("k.py", text).entries] == ["kernel"]


def test_rules_about_kernels_say_nothing_about_host_code(lint_text):
    body = "    try:\n        return [f'{i}' for i in x if x is not args]\n    finally:\n        pass\n"
    text = f"def host(x, *args):\n{body}"
    assert lint_text(text, nki="0.3") == []
