"""The wheel, installed into an empty environment outside the checkout, does what the checkout does."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from kernels_neuron.manifest import Manifest

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


def run(command, cwd):
    """Run a command that must succeed, in `cwd`, with nothing of this checkout in its environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "KERNELS_"))}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("wheel")
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT], cwd=out)
    [path] = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The bin folder of an environment that holds the wheel; torch and the rest are lent by this environment."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False)
    [site] = home.glob("lib/python*/site-packages")
    # a path that a .pth names is searched last and its own .pth files are not read: no editable install comes along
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run([sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", "--no-deps", wheel], cwd=home)
    return home / "bin"


@pytest.fixture
def elsewhere(tmp_path):
    assert ROOT not in tmp_path.parents
    return tmp_path


def test_the_wheel_carries_kernels_artifacts_and_the_demos_model(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for kernel in Manifest.read(ROOT / "kernel.toml").kernels.values():
        assert f"kernels_neuron/packaged/nki_src/{kernel.name}/spec.toml" in names
        for variant in kernel.variants:
            assert f"kernels_neuron/packaged/build/{kernel.repo}/build/{variant}/metadata.json" in names
    assert "kernels_neuron/packaged/kernel.toml" in names
    assert "kernels_neuron/flows/data/digits_vit/model.safetensors" in names
    assert "kernels_neuron/py.typed" in names
    assert not [name for name in names if name.endswith(".pyc") or "/.lock" in name]


def test_its_artifacts_are_the_checkouts_byte_for_byte(wheel, tmp_path):
    from kernels_neuron.builder import build

    files = zipfile.ZipFile(wheel)
    for built in build(Manifest.read(ROOT / "kernel.toml"), out=tmp_path):
        for path in (path for path in built.root.rglob("*") if path.is_file()):
            name = f"kernels_neuron/packaged/build/{path.relative_to(tmp_path).as_posix()}"
            assert files.read(name) == path.read_bytes(), name


def test_the_installed_package_is_the_wheels(installed, elsewhere):
    where = run([installed / "python", "-c", "import kernels_neuron; print(kernels_neuron.__file__)"], elsewhere)
    assert Path(where.strip()).is_relative_to(installed.parent)


def test_list_finds_the_packaged_kernels(installed, elsewhere):
    listed = json.loads(run([installed / "kernels-neuron", "list", "--json"], elsewhere))
    assert {row["kernel"] for row in listed} == set(Manifest.read(ROOT / "kernel.toml").kernels)


def test_verify_proves_one_workload(installed, elsewhere):
    command = ["verify", "layernorm", "--workload", "one_tile", "--json"]
    rows = json.loads(run([installed / "kernels-neuron", *command], elsewhere))
    assert rows and all(row["ok"] and row["instructions"] for row in rows)


def test_the_demo_runs(installed, elsewhere):
    report = json.loads(run([installed / "kernels-neuron", "demo", "--out", "out", "--json"], elsewhere))
    assert report["ok"] and (elsewhere / "out" / "report.html").is_file()
