import pytest

from kernels_neuron.builder.plan import problems_of
from kernels_neuron.builder.write import read_sources
from kernels_neuron.spec import Spec


def problems(project):
    kernel = project.kernels["halve"]
    return problems_of(kernel, Spec.read(kernel.folder), read_sources(project, kernel))


def test_the_scaffold_has_no_problems(project):
    assert problems(project) == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("import numpy", "import numpy: a kernel may import nki, torch, the standard library and what ships"),
        ("import torch_neuronx", "import torch_neuronx: a kernel may import nki, torch"),
        ("from torch.nn import functional", None),
        ("import functools", None),
        ("import halve.kernel", "import halve.kernel has to be relative"),
        ("from common.checks import describe", "from common.checks import describe has to be relative"),
        ("from .missing import x", "from .missing import x names no module that ships with the kernel"),
        ("from ..other.ops import x", "from ..other.ops import x reaches out of the kernel's folder"),
        ("from ...above import x", "from ...above import x reaches out of the kernel's folder"),
        ("from .. import _limits", None),
        ("from ..common import checks", None),
        ("from .kernel import halve as k", "from .kernel import halve: the torch-cpu variant has no kernel.py"),
        ("import nki", "import nki: only kernel.py and what it imports may import nki"),
        ("def f(x: int | None): ...", "int | None needs Python 3.10, write Optional or Union"),
        ("def f() -> int | None: ...", "int | None needs Python 3.10, write Optional or Union"),
        ("f: int | None = None", "int | None needs Python 3.10, write Optional or Union"),
        ("flags = 1 | 2", None),
        ("define_op('halve', 1, 2)", "define_op('halve', ...) has a fixed name; write add_op_namespace_prefix(...)"),
        ("torch.library.custom_op('a::b')", "custom_op('a::b', ...) has a fixed name"),
        ("torch.library.register_fake(f'{1}::b')", "register_fake(f'{1}::b', ...) has a fixed name"),
        ("torch.library.Library('ns', 'DEF')", "Library('ns') has a fixed namespace; use ._ops.define_op"),
        ("torch.library.custom_op(add_op_namespace_prefix('b'))", None),
    ],
)
def test_a_line_in_ops(project, edit, line, expected):
    edit("ops.py", "from . import reference\n", f"from . import reference\n{line}\n")
    found = problems(project)
    if expected is None:
        assert found == []
    else:
        assert len(found) == 1
        assert found[0].startswith(f"halve/ops.py:9: {expected}")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("    def __init__(self):\n        super().__init__()", "layer Halve has a member __init__; a layer may have"),
        ("    limit = 3", "layer Halve has a member limit; a layer may have"),
        ("    @property\n    def eps(self):\n        return 1", "layer Halve has a member eps; a layer may have"),
        ("    weight: torch.Tensor", None),
    ],
)
def test_a_member_of_a_layer(project, edit, line, expected):
    edit("layers.py", "    scale: float\n", f"    scale: float\n{line}\n")
    found = problems(project)
    assert [problem.partition(": ")[2][: len(expected or "")] for problem in found] == ([expected] if expected else [])


def test_a_layer_that_keeps_state_is_refused(project, edit):
    edit("layers.py", "        return", "        self.seen = x\n        return")
    assert problems(project) == ["halve/layers.py:17: layer Halve sets self.seen, and a layer keeps no state"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("match 1:\n    case 1: pass\n", 2),
        ("try: pass\nexcept* ValueError: pass\n", 2),
        ("def f(:\n", 1),
    ],
)
def test_what_python_3_9_cannot_read_is_refused(project, text, line):
    (project.sources / "common" / "checks.py").write_text(text)
    found = problems(project)
    assert found[0].startswith(f"common/checks.py:{line}: not Python 3.9: ")


def test_kernel_py_imports_nki_only(project, edit):
    edit("kernel.py", "import nki\n", "import nki\nimport torch\n")
    assert problems(project) == ["halve/kernel.py:4: import torch: kernel.py runs on the device and imports nki only"]


def test_another_kernels_folder_is_out_of_reach(project, edit):
    edit("ops.py", "from . import reference\n", "from . import reference\nfrom ..other import x\n")
    (project.sources / "other").mkdir()
    (project.sources / "other" / "__init__.py").write_text("x = 1\n")
    outside = "reaches out of the kernel's folder; what two kernels share belongs in common/"
    assert problems(project) == [f"halve/ops.py:9: from ..other import x {outside}"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from .ops import halve\n", "halve/__init__.py: has no __all__ = [...] of plain strings"),
        ("from .ops import halve\n__all__ = [*dir()]\n", "halve/__init__.py: has no __all__ = [...] of plain strings"),
        ("from .ops import halve\n__all__ = ['halv']\n", "halve/__init__.py: __all__ leaves out 'halve', the entry"),
    ],
)
def test_the_public_face_can_be_read(project, edit, text, expected):
    edit("__init__.py", text)
    assert [problem[: len(expected)] for problem in problems(project)] == [expected]


def test_layers_that_are_named_have_to_exist(project, edit):
    edit("__init__.py", "from .ops import halve\n\n__all__ = ['halve', 'layers']\n")
    (project.sources / "halve" / "layers.py").unlink()
    assert problems(project) == ["halve/__init__.py: __all__ names layers, and there is no layers.py"]


def test_a_missing_kernel_is_named(project):
    (project.sources / "halve" / "kernel.py").unlink()
    assert problems(project) == [
        "halve/ops.py:24: from .kernel import halve names no module that ships with the kernel",
        "halve/kernel.py: is missing or imported by nothing, so it would not ship",
    ]


def test_all_problems_come_at_once(project, edit):
    edit("ops.py", "import torch\n", "import torch\nimport numpy\nimport scipy\n")
    edit("layers.py", "    scale: float\n", "    scale: float = 1.0\n")
    assert len(problems(project)) == 3
