import pytest

from kernels_neuron.builder import scaffold
from kernels_neuron.manifest import Manifest


@pytest.fixture
def project(tmp_path):
    """A project with one scaffolded kernel, outside version control."""
    scaffold("halve", tmp_path)
    return Manifest.read(tmp_path / "kernel.toml")


@pytest.fixture
def edit(project):
    """Changes a file of the kernel: edit("ops.py", old, new), or edit("ops.py", text) for the whole file."""

    def change(name, old, new=None):
        file = project.sources / "halve" / name
        if new is None:
            file.write_text(old)
        else:
            text = file.read_text()
            assert old in text
            file.write_text(text.replace(old, new))

    return change
