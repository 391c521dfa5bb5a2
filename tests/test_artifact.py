import importlib
import json
import shutil
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import _rust as upstream

from kernels_neuron import artifact
from kernels_neuron.artifact import Metadata, build_id, digest_files, digest_problems, import_variant
from kernels_neuron.errors import ArtifactError

SOURCES = {
    "__init__.py": "from .scale import *\nfrom .scale import __all__\n",
    "_limits.py": "LIMITS = {}\n",
    "scale/__init__.py": "from .ops import scale\nfrom ..common.checks import double\n__all__ = ['scale', 'double']\n",
    "scale/ops.py": "from ..common.checks import double\nfrom .._limits import LIMITS\n\n\n"
    "def scale(x):\n    return double(x)\n",
    "common/__init__.py": "",
    "common/checks.py": "def double(x):\n    return 2 * x\n",
}
_made: list[str] = []


@pytest.fixture(autouse=True)
def clean_process():
    yield
    for id in _made:
        artifact._IMPORTED.pop(id, None)
        artifact._FILES.pop(id, None)
        for name in [name for name in sys.modules if name == id or name.startswith(f"{id}.")]:
            del sys.modules[name]
    _made.clear()


def variant(root: Path, sources=SOURCES, name="neuron-scale", **changes) -> Path:
    for path, text in sources.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    files = {path: text.encode() for path, text in sources.items()}
    fields = {
        "name": name,
        "id": build_id(name, "neuron", files),
        "version": 1,
        "license": "apache-2.0",
        "python_depends": ("nki",),
        "backend": "neuron",
        "digest": digest_files(root),
        "provenance": {"kernel-builder": {"version": "x"}, "kernel": {"commit": "a" * 40, "dirty": False}},
        "nki": {"versions": ["0.7"], "kernel": "scale"},
    }
    metadata = Metadata(**(fields | changes))
    (root / "metadata.json").write_text(metadata.to_json())
    _made.append(metadata.id)
    return root


def upstream_digest(root: Path) -> "upstream.Digest":
    return upstream.Digest.hash_variant(upstream.DigestAlgorithm.SHA256, root)


def test_digest_is_upstreams(tmp_path):
    root = variant(tmp_path)
    (root / ".hidden").write_text("counts")
    (root / "scale" / "metadata.json").write_text("counts")
    (root / "scale" / "x.pyc").write_text("does not")
    (root / "scale" / "__pycache__").mkdir()
    (root / "scale" / "__pycache__" / "y.py").write_text("does not")
    (root / "metadata.json.sigstore").write_text("does not")
    (root / "link.py").symlink_to("_limits.py")
    ours = digest_files(root)
    assert ours == upstream_digest(root).files
    assert ".hidden" in ours
    assert len(ours) == len(SOURCES) + 3


NAMES = ["a.py", "B.py", "\u00e4.py", "a b.py", ".hidden", "x.pyc", "metadata.json", "metadata.json.sigstore", "_.txt"]


@settings(deadline=None, max_examples=40)
@given(st.dictionaries(st.sampled_from(NAMES), st.binary(max_size=50)))
def test_digest_is_upstreams_for_any_names_and_bytes(files):
    with tempfile.TemporaryDirectory() as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        assert digest_files(folder) == upstream_digest(Path(folder)).files


def test_upstream_reads_what_we_write(tmp_path):
    root = variant(tmp_path)
    theirs = upstream.Metadata.read_from_file(root / "metadata.json")
    assert str(theirs.name) == "neuron-scale"
    assert theirs.id == Metadata.read(root).id
    assert theirs.version == 1
    assert theirs.python_depends == ["nki"]
    assert str(theirs.backend.backend_type) == "neuron"
    assert theirs.provenance.kernel.commit == "a" * 40
    theirs.digest.validate(upstream_digest(root))


def test_metadata_is_laid_out_as_upstreams_writer_does():
    metadata = Metadata("neuron-x", "_neuron_x_cpu_a", 2, "mit", (), "cpu", {"b": "Yg==", "a": "YQ=="})
    assert metadata.to_json() == "\n".join(
        [
            "{",
            '  "name": "neuron-x",',
            '  "id": "_neuron_x_cpu_a",',
            '  "version": 2,',
            '  "kernels-minver": "0.14.0",',
            '  "license": "mit",',
            '  "python-depends": [],',
            '  "kernel-depends": [],',
            '  "backend": {',
            '    "type": "cpu"',
            "  },",
            '  "digest": {',
            '    "algorithm": "sha256",',
            '    "files": {',
            '      "a": "YQ==",',
            '      "b": "Yg=="',
            "    }",
            "  }",
            "}",
        ]
    )


def test_json_is_written_as_upstream_writes_json():
    lock = json.dumps({"commit": "a" * 40}, indent=2, ensure_ascii=False)
    assert upstream.KernelLock("a" * 40).to_json() == lock


def test_metadata_survives_a_round_trip(tmp_path):
    metadata = Metadata.read(variant(tmp_path))
    assert Metadata.parse(metadata.to_json().encode()) == metadata
    assert metadata.nki == {"versions": ["0.7"], "kernel": "scale"}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"name": None}, "name is missing"),
        ({"name": "Scale"}, "name has to be lower-case letters, digits and dashes, got 'Scale'"),
        ({"id": "json"}, "id has to start with _neuron_scale_"),
        ({"id": "_neuron_scale_neuron_a.b"}, "id has to start with _neuron_scale_"),
        ({"version": "1"}, 'version has to be an integer, got "1"'),
        ({"version": True}, "version has to be an integer, got true"),
        ({"license": None}, "license is missing"),
        ({"python-depends": None}, "python-depends is missing"),
        ({"python-depends": [1]}, "python-depends has to be a list of strings"),
        ({"backend": "neuron"}, "backend has to be an object"),
        ({"backend": {}}, "backend.type is missing"),
        ({"digest": {"algorithm": "md5", "files": {}}}, "digest.algorithm has to be sha256, got 'md5'"),
        ({"digest": {"algorithm": "sha256", "files": {"a": 1}}}, "digest.files.a has to be a base64 string"),
    ],
)
def test_a_wrong_field_is_named_with_its_file(tmp_path, change, expected):
    root = variant(tmp_path)
    value = json.loads((root / "metadata.json").read_text())
    for key, new in change.items():
        if new is None:
            del value[key]
        else:
            value[key] = new
    (root / "metadata.json").write_text(json.dumps(value))
    with pytest.raises(ArtifactError) as caught:
        Metadata.read(root)
    assert str(caught.value).startswith(f"{root / 'metadata.json'}: {expected}")


@pytest.mark.parametrize(("data", "expected"), [(b"", "is empty"), (b"{", "not JSON"), (b"[]", "has to be an object")])
def test_a_file_that_holds_no_metadata_is_refused(tmp_path, data, expected):
    root = variant(tmp_path)
    (root / "metadata.json").write_bytes(data)
    with pytest.raises(ArtifactError, match=expected):
        Metadata.read(root)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match=r"there is no .*metadata\.json"):
        import_variant(tmp_path)


def test_unknown_fields_absent_options_and_a_byte_order_mark_are_accepted(tmp_path):
    root = variant(tmp_path)
    value = json.loads((root / "metadata.json").read_text()) | {"future": [1]}
    for key in ("provenance", "nki", "kernels-minver", "kernel-depends"):
        del value[key]
    (root / "metadata.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(value).encode())
    assert Metadata.read(root).provenance is None


def test_build_id_depends_on_paths_and_bytes_only():
    files = {"a.py": b"1", "b.py": b"2"}
    id = build_id("neuron-scale", "neuron", files)
    assert id.startswith("_neuron_scale_neuron_")
    assert len(id.rpartition("_")[2]) == 10
    assert id == build_id("neuron-scale", "neuron", dict(reversed(files.items())))
    for other in ({"a.py": b"1", "b.py": b"3"}, {"a.py": b"1", "c.py": b"2"}, {"a.py": b"12", "b.py": b""}):
        assert id != build_id("neuron-scale", "neuron", other)


def test_a_variant_is_imported_with_its_relative_imports(tmp_path):
    module = import_variant(variant(tmp_path))
    assert module.scale(3) == 6
    assert module.__name__ == Metadata.read(tmp_path).id
    assert sys.modules[module.__name__] is module
    assert importlib.import_module(f"{module.__name__}.scale.ops").scale is module.scale
    assert import_variant(tmp_path) is module


def test_no_bytecode_is_written_and_a_planted_one_does_not_run(tmp_path, monkeypatch):
    root = variant(tmp_path)
    evil = tmp_path / "evil.py"
    evil.write_text("def double(x):\n    return 'planted'\n")
    import py_compile

    cached = importlib.util.cache_from_source(str(root / "common" / "checks.py"))
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(evil), cfile=cached, dfile=str(root / "common" / "checks.py"), invalidation_mode=mode)
    evil.unlink()
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert digest_problems(root, Metadata.read(root)) == []
    assert import_variant(root).scale(3) == 6
    assert [path.name for path in root.rglob("*.pyc")] == [Path(cached).name]


def damage_flip(root):
    (root / "scale" / "ops.py").write_text(SOURCES["scale/ops.py"].replace("double(x)", "double(y)"))


def damage_truncate(root):
    (root / "scale" / "ops.py").write_text("")


def damage_swap(root):
    one, two = root / "scale" / "ops.py", root / "_limits.py"
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)


def damage_delete(root):
    (root / "scale" / "ops.py").unlink()


def damage_add(root):
    (root / "scale" / "extra.py").write_text("")


def damage_link_out(root):
    outside = root.parent / "outside.py"
    shutil.move(root / "scale" / "ops.py", outside)
    (root / "scale" / "ops.py").symlink_to(outside)


def damage_link_folder(root):
    (root / "more").symlink_to(root / "scale")


def damage_link_nowhere(root):
    (root / "gone.py").symlink_to(root / "nothing.py")


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (damage_flip, ["scale/ops.py: changed"]),
        (damage_truncate, ["scale/ops.py: changed"]),
        (damage_swap, ["_limits.py: changed", "scale/ops.py: changed"]),
        (damage_delete, ["scale/ops.py: missing"]),
        (damage_add, ["scale/extra.py: not listed in metadata.json"]),
        (damage_link_out, ["scale/ops.py: a link that leaves the repo"]),
        (damage_link_folder, ["more: a link to a folder"]),
        (damage_link_nowhere, ["gone.py: a link to nothing"]),
    ],
)
def test_a_damaged_variant_is_refused_before_any_of_it_runs(tmp_path, damage, expected):
    marked = SOURCES | {"__init__.py": "import builtins\nbuiltins.ran = True\n" + SOURCES["__init__.py"]}
    root = variant(tmp_path / "v", marked)
    damage(root)
    problems = digest_problems(root, Metadata.read(root))
    assert len(problems) == len(expected)
    assert all(problem.startswith(start) for problem, start in zip(problems, expected, strict=True))
    with pytest.raises(ArtifactError) as caught:
        import_variant(root)
    assert all(start in str(caught.value) for start in expected)
    assert not hasattr(importlib.import_module("builtins"), "ran")
    assert Metadata.read(root).id not in sys.modules


def hub_cache(tmp_path, root):
    """The same variant as the Hub client caches it: each file a link into the repo's blobs."""
    repo = tmp_path / "kernels--org--neuron-scale"
    snapshot = repo / "snapshots" / ("c" * 40) / "build" / "torch-neuron"
    (repo / "blobs").mkdir(parents=True)
    for i, file in enumerate(sorted(path for path in root.rglob("*") if path.is_file())):
        link = snapshot / file.relative_to(root)
        link.parent.mkdir(parents=True, exist_ok=True)
        blob = repo / "blobs" / f"{i:040x}"
        shutil.copy(file, blob)
        link.symlink_to(blob)
    return repo, snapshot


def test_a_variant_in_the_hub_cache_is_imported_through_its_links(tmp_path):
    _, snapshot = hub_cache(tmp_path, variant(tmp_path / "v"))
    assert import_variant(snapshot).scale(3) == 6


def test_a_link_into_the_blobs_of_another_repo_is_refused(tmp_path):
    repo, snapshot = hub_cache(tmp_path, variant(tmp_path / "v"))
    other = tmp_path / "kernels--org--other" / "blobs"
    shutil.copytree(repo / "blobs", other)
    file = snapshot / "scale" / "ops.py"
    blob = other / file.readlink().name
    file.unlink()
    file.symlink_to(blob)
    with pytest.raises(ArtifactError, match=r"scale/ops\.py: a link that leaves the repo"):
        import_variant(snapshot)


def test_two_versions_of_a_kernel_live_side_by_side(tmp_path):
    one = import_variant(variant(tmp_path / "one"))
    tripled = SOURCES | {"common/checks.py": "def double(x):\n    return 3 * x\n"}
    two = import_variant(variant(tmp_path / "two", tripled, version=2))
    assert (one.scale(1), two.scale(1)) == (2, 3)


def test_state_of_two_versions_is_apart(tmp_path):
    counting = SOURCES | {
        "common/checks.py": "calls = {}\n\n\ndef double(x):\n    calls[x] = 1\n    return len(calls)\n"
    }
    one = import_variant(variant(tmp_path / "one", counting))
    two = import_variant(variant(tmp_path / "two", counting | {"_limits.py": "LIMITS = {'H': 1}\n"}))
    assert (one.scale(1), one.scale(2), two.scale(3)) == (1, 2, 1)


def test_a_kernel_called_json_does_not_touch_json(tmp_path):
    module = import_variant(variant(tmp_path, name="json"))
    assert module.scale(3) == 6
    assert importlib.import_module("json") is json


def test_an_id_that_is_loaded_with_other_contents_is_refused(tmp_path):
    id = import_variant(variant(tmp_path / "one")).__name__
    other = variant(tmp_path / "two", SOURCES | {"_limits.py": "LIMITS = 1\n"}, id=id)
    with pytest.raises(ArtifactError, match=f"has the id {id}, which this process has loaded with other contents"):
        import_variant(other)


def test_an_id_that_upstream_loaded_from_the_same_bytes_is_reused(tmp_path):
    from kernels import get_local_kernel

    cpu = {"python_depends": (), "backend": "cpu", "id": "_neuron_scale_cpu_abc"}
    repo = tmp_path / "repo"
    root = variant(repo / "build" / "torch-cpu", **cpu)
    theirs = get_local_kernel(repo)
    assert import_variant(root) is theirs
    other = variant(tmp_path / "other", SOURCES | {"_limits.py": "LIMITS = 1\n"}, **cpu)
    with pytest.raises(ArtifactError, match="loaded with other contents"):
        import_variant(other)


def test_a_kernel_that_raises_on_import_leaves_nothing_behind(tmp_path):
    root = variant(tmp_path, SOURCES | {"scale/ops.py": "import no_such_package\n"})
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_package"):
            import_variant(root)
    assert not [name for name in sys.modules if name.startswith(Metadata.read(root).id)]


def test_a_file_planted_after_the_import_is_not_found(tmp_path):
    module = import_variant(variant(tmp_path))
    (tmp_path / "planted.py").write_text("")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{module.__name__}.planted")


def test_the_bytes_that_were_hashed_run_even_if_the_file_changes_meanwhile(tmp_path):
    lazy = SOURCES | {"scale/ops.py": "def scale(x):\n    from ..common.late import double\n    return double(x)\n"}
    lazy |= {"common/late.py": SOURCES["common/checks.py"]}
    module = import_variant(variant(tmp_path, lazy))
    (tmp_path / "common" / "late.py").write_text("def double(x):\n    return 'changed'\n")
    assert module.scale(3) == 6


def test_no_digest_and_kernel_dependencies_are_refused(tmp_path):
    with pytest.raises(ArtifactError, match="lists no digests"):
        import_variant(variant(tmp_path / "one", digest={}))
    depends = ({"repo-id": "org/other", "version": 1},)
    with pytest.raises(ArtifactError, match=r"depends on other kernels \(org/other\)"):
        import_variant(variant(tmp_path / "two", kernel_depends=depends))


def test_threads_get_one_module(tmp_path):
    root = variant(tmp_path, SOURCES | {"_limits.py": "import time\ntime.sleep(0.05)\nLIMITS = {}\n"})
    found = []
    threads = [threading.Thread(target=lambda: found.append(import_variant(root))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len({id(module) for module in found}) == 1


def test_a_traceback_shows_the_source_of_a_variant(tmp_path):
    import inspect

    module = import_variant(variant(tmp_path))
    assert inspect.getsource(module.scale) == "def scale(x):\n    return double(x)\n"
