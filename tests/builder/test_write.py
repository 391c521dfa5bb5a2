import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kernels import _rust as upstream

from kernels_neuron.artifact import Metadata, import_variant
from kernels_neuron.builder import build, write
from kernels_neuron.errors import FileProblems, UsageError
from kernels_neuron.manifest import Manifest


def tree(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_a_build_is_a_hub_repo(project):
    (built,) = build(project)
    assert (built.name, built.hub_name, built.root) == ("halve", "neuron-halve", project.build_root / "neuron-halve")
    assert sorted(tree(built.root)) == [
        "README.md",
        "benchmarks/benchmark.py",
        *(
            f"build/torch-cpu/{name}"
            for name in (
                "__init__.py", "_limits.py", "_ops.py", "api.json", "common/__init__.py", "common/checks.py",
                "halve/__init__.py", "halve/layers.py", "halve/ops.py", "halve/reference.py", "metadata.json",
            )
        ),
        *(
            f"build/torch-neuron/{name}"
            for name in (
                "__init__.py", "_limits.py", "_ops.py", "api.json", "common/__init__.py", "common/checks.py",
                "halve/__init__.py", "halve/kernel.py", "halve/layers.py", "halve/ops.py", "halve/reference.py",
                "metadata.json",
            )
        ),
    ]  # fmt: skip


def test_sources_ship_byte_for_byte(project):
    (built,) = build(project)
    for name in ("halve/kernel.py", "halve/ops.py", "common/checks.py"):
        assert (built.variants["torch-neuron"] / name).read_bytes() == (project.sources / name).read_bytes()


@pytest.mark.parametrize("variant", ["torch-neuron", "torch-cpu"])
def test_upstream_accepts_metadata_and_digest(project, variant):
    (built,) = build(project)
    theirs = upstream.Metadata.read_from_file(built.variants[variant] / "metadata.json")
    theirs.digest.validate(upstream.Digest.hash_variant(upstream.DigestAlgorithm.SHA256, built.variants[variant]))
    assert theirs.python_depends == (["nki"] if variant == "torch-neuron" else [])
    assert theirs.provenance is None


def test_our_block_says_what_the_version_gate_compares(project, edit):
    edit("spec.toml", "[inputs]", "[limits]\nH = [1, 8192]\n\n[inputs]")
    (built,) = build(project)
    assert Metadata.read(built.variants["torch-neuron"]).nki == {
        "kernel": "halve",
        "versions": ["0.7"],
        "archs": ["trn2", "trn3"],
        "dtypes": ["float32", "bfloat16", "float16"],
        "limits": {"H": [1, 8192]},
        "tolerances": {
            "float32": "rtol 1e-05 + atol 1e-06",
            "bfloat16": "rtol 0.0078 + atol 0.0039 * max|ref|",
            "float16": "rtol 0.00098 + atol 0.00049 * max|ref|",
        },
    }
    limits = import_variant(built.variants["torch-cpu"])
    assert sys.modules[f"{limits.__name__}._limits"].LIMITS == {"H": (1, 8192)}
    assert sys.modules[f"{limits.__name__}._limits"].DTYPES == ("float32", "bfloat16", "float16")


def test_upstream_loads_the_cpu_variant_and_it_needs_no_nki(project):
    (built,) = build(project)
    code = (
        "import sys, torch; from pathlib import Path; from kernels import get_local_kernel; sys.modules['nki'] = None;"
        "print(get_local_kernel(Path(sys.argv[1])).halve(torch.ones(2), 0.5).tolist())"
    )
    command = [sys.executable, "-c", code, str(built.root)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[0.5, 0.5]\n"


def test_building_twice_changes_nothing(project):
    (first,) = build(project)
    stamps = {path: path.stat().st_mtime_ns for path in first.root.rglob("*")}
    (second,) = build(project)
    assert first == second
    assert stamps == {path: path.stat().st_mtime_ns for path in second.root.rglob("*")}


def test_two_builds_are_byte_identical(project, tmp_path):
    (one,), (two,) = build(project, out=tmp_path / "one"), build(project, out=tmp_path / "two")
    assert tree(one.root) == tree(two.root)
    assert one.digest == two.digest


def test_a_change_gives_another_id_and_replaces_the_repo(project, edit):
    (before,) = build(project)
    ids = [Metadata.read(path).id for path in before.variants.values()]
    (before.root / "stale.txt").write_text("left over")
    edit("reference.py", "return x * scale", "return scale * x")
    (after,) = build(project)
    assert not (after.root / "stale.txt").exists()
    assert after.digest != before.digest
    assert all(old != Metadata.read(path).id for old, path in zip(ids, after.variants.values(), strict=True))


def test_only_the_named_kernels_are_built(project):
    assert [built.name for built in build(project, ["neuron-halve"])] == ["halve"]
    with pytest.raises(UsageError, match="did you mean 'halve'"):
        build(project, ["halv"])


def test_only_the_named_variants_are_built(project):
    text = project.path.read_text().replace('["torch-neuron", "torch-cpu"]', '["torch-cpu"]')
    project.path.write_text(text)
    (built,) = build(Manifest.read(project.path))
    assert list(built.variants) == ["torch-cpu"]
    assert [path.name for path in (built.root / "build").iterdir()] == ["torch-cpu"]


def test_a_problem_stops_the_build_before_anything_is_written(project, edit):
    edit("ops.py", "import torch\n", "import torch\nimport numpy\n")
    with pytest.raises(FileProblems, match="import numpy: a kernel may import nki, torch"):
        build(project)
    assert not project.build_root.exists()


def test_a_failed_write_leaves_the_former_build(project, edit, monkeypatch):
    (before,) = build(project)
    whole = tree(before.root)
    edit("reference.py", "return x * scale", "return scale * x")

    def full(path, data):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        build(project)
    monkeypatch.undo()
    assert tree(before.root) == whole
    assert sorted(path.name for path in project.build_root.iterdir()) == [".lock", "neuron-halve"]


def test_what_a_killed_build_left_is_removed(project):
    left = project.build_root / ".unfinished-abc"
    left.mkdir(parents=True)
    build(project)
    assert not left.exists()


def test_builders_at_the_same_time_do_not_meet(project):
    failures = []

    def one():
        try:
            build(project)
        except OSError as error:
            failures.append(error)

    threads = [threading.Thread(target=one) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert write.same_files(project.build_root / "neuron-halve", write.plan_all(project)[0].files)


def test_a_link_among_the_sources_is_refused(project):
    os.symlink(project.sources / "halve" / "ops.py", project.sources / "halve" / "more.py")
    with pytest.raises(FileProblems, match=r"halve/more\.py: is a link"):
        build(project)


def test_bytecode_and_other_files_do_not_ship(project):
    cache = project.sources / "halve" / "__pycache__"
    cache.mkdir()
    (cache / "ops.cpython-311.pyc").write_bytes(b"x")
    (project.sources / "halve" / "notes.txt").write_text("x")
    (project.sources / "halve" / "unused.py").write_text("")
    (built,) = build(project)
    assert not [name for name in tree(built.root) if "pyc" in name or "notes" in name or "unused" in name]


def git(project, *arguments):
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *settings, *arguments], cwd=project.root, check=True, capture_output=True)


@pytest.fixture
def committed(project):
    (project.root / ".gitignore").write_text("build/\n")
    git(project, "init")
    git(project, "add", ".")
    git(project, "commit", "-m", "one")
    return project


def kernel_provenance(project):
    (built,) = build(project)
    recorded = Metadata.read(built.variants["torch-neuron"]).provenance
    assert recorded["kernel-builder"]["version"].startswith("kernels-neuron ")
    return recorded["kernel"]


def test_a_clean_tree_is_recorded_by_its_commit(committed):
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=committed.root, capture_output=True, text=True, check=True)
    assert kernel_provenance(committed) == {"commit": head.stdout.strip(), "dirty": False}


def test_two_builds_of_one_commit_are_byte_identical(committed, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("clone") / "checkout"
    subprocess.run(["git", "clone", "-q", committed.root, elsewhere], check=True, capture_output=True)
    (one,), (two,) = build(committed), build(Manifest.read(elsewhere / "kernel.toml"))
    assert tree(one.root) == tree(two.root)


def test_an_edited_file_makes_it_dirty_and_keeps_a_clean_id_for_clean_bytes(committed, edit):
    (clean,) = build(committed)
    clean_id = Metadata.read(clean.variants["torch-neuron"]).id
    edit("spec.toml", "Scaffold of", "A scaffold of")
    assert kernel_provenance(committed)["dirty"] is True
    assert Metadata.read(clean.variants["torch-neuron"]).id == clean_id


def test_an_untracked_file_among_the_sources_makes_it_dirty(committed):
    (committed.root / "notes.txt").write_text("not a source")
    assert kernel_provenance(committed)["dirty"] is False
    (committed.sources / "halve" / "extra.py").write_text("")
    assert kernel_provenance(committed)["dirty"] is True


def test_without_git_there_is_no_provenance(committed, monkeypatch):
    monkeypatch.setenv("PATH", "")
    (built,) = build(committed)
    assert Metadata.read(built.variants["torch-neuron"]).provenance is None


def test_a_project_ignored_by_the_repository_around_it_has_no_provenance(committed, tmp_path):
    inside = committed.root / "build" / "packaged"
    inside.mkdir(parents=True)
    shutil.copy(committed.path, inside)
    shutil.copytree(committed.sources, inside / "nki_src")
    (built,) = build(Manifest.read(inside / "kernel.toml"))
    assert Metadata.read(built.variants["torch-neuron"]).provenance is None


def test_an_installed_artifact_keeps_the_commit_it_was_built_from(committed, tmp_path_factory):
    (built,) = build(committed)
    installed = tmp_path_factory.mktemp("installed")
    shutil.copy(committed.path, installed)
    shutil.copytree(committed.sources, installed / "nki_src")
    shutil.copytree(built.root, installed / "build" / built.hub_name)
    (again,) = build(Manifest.read(installed / "kernel.toml"))
    assert tree(again.root) == tree(built.root)
    assert sorted(path.name for path in (installed / "build").iterdir()) == ["neuron-halve"]
    (again.root / "build" / "torch-cpu" / "_limits.py").write_text("DTYPES = ()\n")
    build(Manifest.read(installed / "kernel.toml"))
    assert Metadata.read(again.variants["torch-cpu"]).provenance is None
