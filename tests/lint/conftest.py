import textwrap

import pytest

from kernels_neuron.lint import Selection, Target, lint_file

HEADER = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n\n\n"


@pytest.fixture
def lint_text(tmp_path):
    """Lint a text, under the usual imports unless `header` says otherwise; the findings."""

    def lint_text(text, nki="0.7", arch=None, header=HEADER, select=(), ignore=()):
        path = tmp_path / "kernel.py"
        path.write_text(header + textwrap.dedent(text))
        return lint_file(path, Target.of(nki, arch), Selection(select, ignore))

    return lint_text
