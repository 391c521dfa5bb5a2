import json

import pytest

from kernels_neuron.builder import build, check


@pytest.fixture
def built(project):
    (one,) = build(project)
    return one


def found(project):
    return [f"{problem.where}: {problem.text}" for problem in check(project)]


def test_a_fresh_build_passes(project, built):
    assert found(project) == []


def test_what_is_not_built_is_a_problem(project):
    assert found(project) == ["neuron-halve: is not built; run `kernels-neuron build halve`"]


def damage_source(root):
    file = root / "build/torch-neuron/halve/kernel.py"
    file.write_text(file.read_text() + "import os.path\nimport numpy\n")


def damage_delete(root):
    (root / "build/torch-cpu/halve/layers.py").unlink()


def damage_license(root):
    file = root / "build/torch-cpu/metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"license": "mit"}))


def damage_name(root):
    file = root / "build/torch-cpu/metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"name": "Halve"}))


def damage_ops(root):
    file = root / "build/torch-neuron/_ops.py"
    file.write_text(file.read_text() + "# edited\n")


def damage_card(root):
    (root / "README.md").unlink()


def damage_front_matter(root):
    (root / "README.md").write_text("---\nlicense: mit\n---\n")


def damage_yaml(root):
    (root / "README.md").write_text("---\nlicense: [\n---\n")


def damage_link(root):
    (root / "build/torch-cpu/more.py").symlink_to(root / "README.md")


def damage_bytecode(root):
    (root / "build/torch-cpu/__pycache__").mkdir()
    (root / "build/torch-cpu/__pycache__/x.pyc").write_text("")


def damage_variant(root):
    (root / "build/torch-cuda").mkdir()


def damage_extra(root):
    (root / "notes.txt").write_text("")


def damage_benchmark(root):
    (root / "benchmarks/speed.py").write_text("")
    (root / "benchmarks/benchmark.py").write_text("x = 1\n")


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (
            damage_source,
            [
                "build/torch-neuron/halve/kernel.py: changed, its SHA-256 is",
                "build/torch-neuron/metadata.json: upstream kernels:",
                "build/torch-neuron/halve/kernel.py:44: import numpy: a kernel may import",
                "build/torch-neuron/metadata.json: id is",
            ],
        ),
        (
            damage_delete,
            [
                "build/torch-cpu/halve/layers.py: missing",
                "build/torch-cpu/metadata.json: upstream kernels:",
                "build/torch-cpu/halve/__init__.py:4: from . import layers names no module",
                "build/torch-cpu/metadata.json: id is",
            ],
        ),
        (damage_license, ["build/torch-cpu/metadata.json: license is 'mit', kernel.toml says 'apache-2.0'"]),
        (damage_name, ["build/torch-cpu/metadata.json: name has to be lower-case letters, digits and dashes"]),
        (
            damage_ops,
            [
                "build/torch-neuron/_ops.py: changed",
                "build/torch-neuron/metadata.json: upstream kernels:",
                "build/torch-neuron/_ops.py: is not what this version of the builder writes; build again",
            ],
        ),
        (damage_card, ["README.md: is missing, and the Hub shows it as the kernel's card"]),
        (
            damage_front_matter,
            [
                "README.md: license in the front matter has to be apache-2.0, got mit",
                "README.md: library_name in the front matter has to be kernels, got None",
            ],
        ),
        (
            damage_bytecode,
            ["build/torch-cpu/__pycache__: is bytecode", "build/torch-cpu/__pycache__/x.pyc: is bytecode"],
        ),
        (damage_yaml, ["README.md: its front matter cannot be read: "]),
        (damage_variant, ["build/torch-cuda: is no variant that kernel.toml names (torch-neuron, torch-cpu)"]),
        (damage_extra, ["notes.txt: unknown entry of a kernel repo 'notes.txt'"]),
        (
            damage_benchmark,
            [
                "benchmarks/benchmark.py: has no class X(Benchmark)",
                "benchmarks/speed.py: is not called benchmark*.py, so `kernels benchmark` does not find it",
            ],
        ),
    ],
)
def test_damage_is_named(project, built, damage, expected):
    damage(built.root)
    problems = found(project)
    assert [problem[: len(start)] for problem, start in zip(problems, expected, strict=False)] == expected
    assert len(problems) == len(expected)


def test_a_link_is_named(project, built):
    damage_link(built.root)
    assert "build/torch-cpu/more.py: is a link, and a repo holds plain files only" in found(project)


def test_a_build_of_other_sources_is_stale(project, built, edit):
    edit("reference.py", "return x * scale", "return scale * x")
    stale = "was built from other sources than there are now; run `kernels-neuron build halve`"
    assert found(project) == [f"build/torch-neuron: {stale}", f"build/torch-cpu: {stale}"]


def test_problems_of_sources_and_of_the_build_come_together(project, built, edit):
    edit("ops.py", "import torch\n", "import torch\nimport numpy\n")
    damage_card(built.root)
    assert [problem.partition(": ")[0] for problem in found(project)] == ["halve/ops.py:4", "README.md"]


def test_a_wrong_spec_is_a_problem_and_not_an_error(project, built, edit):
    edit("spec.toml", 'kind    = "elementwise"', 'kind    = "element"')
    assert found(project) == ["kind: unknown kind 'element', did you mean 'elementwise'"]
