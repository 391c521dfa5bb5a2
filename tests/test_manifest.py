import pytest

from kernels_neuron import manifest
from kernels_neuron.errors import FileProblems, UsageError
from kernels_neuron.manifest import Manifest, find_manifest

GOOD = """
[kernels.scale]
repo = "neuron-scale"
version = 2
license = "apache-2.0"
variants = ["torch-neuron"]
[kernels.shift]
repo = "neuron-shift"
version = 1
license = "mit"
"""


@pytest.fixture
def project(tmp_path):
    for name in ("scale", "shift"):
        folder = tmp_path / "nki_src" / name
        folder.mkdir(parents=True)
        (folder / "spec.toml").write_text("")
    (tmp_path / "kernel.toml").write_text(GOOD)
    return tmp_path


def problems(project, text):
    (project / "kernel.toml").write_text(text)
    with pytest.raises(FileProblems) as caught:
        Manifest.read(project / "kernel.toml")
    return caught.value.problems


def test_a_manifest_is_read_into_plain_values(project):
    read = Manifest.read(project / "kernel.toml")
    assert list(read.kernels) == ["scale", "shift"]
    scale = read.kernels["scale"]
    assert (scale.repo, scale.version, scale.license) == ("neuron-scale", 2, "apache-2.0")
    assert scale.folder == project / "nki_src" / "scale"
    assert scale.variants == ("torch-neuron",)
    assert read.kernels["shift"].variants == ("torch-neuron", "torch-cpu")
    assert read.build_root == project / "build"


def test_kernels_are_chosen_by_folder_or_repo(project):
    read = Manifest.read(project / "kernel.toml")
    assert [kernel.name for kernel in read.select()] == ["scale", "shift"]
    assert [kernel.name for kernel in read.select(["neuron-shift", "scale", "shift"])] == ["shift", "scale"]
    with pytest.raises(UsageError, match="unknown kernel 'scael', did you mean 'scale'"):
        read.select(["scael"])


def test_every_problem_is_reported_at_once(project):
    text = GOOD.replace("version = 2", 'version = "2"').replace("neuron-shift", "Neuron_Shift")
    text = text.replace('["torch-neuron"]', '["torch-neruon"]').replace('license = "mit"', 'licence = "mit"')
    text += '[kernels.shfit]\nrepo = "neuron-scale"\nversion = 0\nlicense = ""\n'
    assert problems(project, text) == [
        "kernels.scale.version: has to be an integer, got '2'",
        "kernels.scale.variants[0]: unknown variant 'torch-neruon', did you mean 'torch-neuron'",
        "kernels.shift.license: is missing, and has to be a string",
        "kernels.shift.licence: unknown key 'licence', did you mean 'license'",
        "kernels.shift.repo: lower-case letters, digits and dashes, at least two, starting with a letter; "
        "got 'Neuron_Shift'",
        "kernels.shfit: unknown folder of nki_src 'shfit', did you mean 'shift'",
        "kernels.shfit.version: has to be 1 or more, got 0",
        "kernels.shfit.license: is empty, and the Hub asks for one, such as apache-2.0",
        "kernels.shfit.repo: neuron-scale is taken by kernels.scale",
    ]


def test_a_folder_without_a_spec_is_a_problem(project):
    (project / "nki_src" / "shift" / "spec.toml").unlink()
    assert problems(project, GOOD) == ["kernels.shift: nki_src/shift has no spec.toml"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "kernels: is missing, and has to be a table"),
        ("[kernels", "not TOML: expected ']'"),
        ("kernels = 3", "kernels: has to be a table, got 3"),
        ("kernels.scale = 3", "kernels.scale: has to be a table, got 3"),
        ("[kernels.common]\n", "kernels.common: a folder name is lower-case"),
        (GOOD + "[kernel]\n", "kernel: unknown key 'kernel', did you mean 'kernels'"),
    ],
)
def test_a_wrong_manifest_is_refused(project, text, expected):
    assert any(problem.startswith(expected) for problem in problems(project, text))


def test_the_nearest_manifest_upward_is_found(project):
    below = project / "nki_src" / "scale"
    assert find_manifest(below) == project / "kernel.toml"


def test_the_packaged_manifest_is_used_elsewhere(tmp_path, monkeypatch):
    packaged = tmp_path / "packaged" / "kernel.toml"
    packaged.parent.mkdir()
    packaged.write_text(GOOD)
    monkeypatch.setattr(manifest, "PACKAGED", packaged)
    (tmp_path / "empty").mkdir()
    assert find_manifest(tmp_path / "empty") == packaged


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"there is no .*nowhere\.toml"):
        Manifest.read(tmp_path / "nowhere.toml")
