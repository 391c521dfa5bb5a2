"""The documents: every command in them exists, every command is in them, every example runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernels_neuron.cli.main import COMMANDS, load_command

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FIRST = ROOT / "docs" / "first-kernel.md"


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(path: Path, *languages: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)
    return [block for language, block in fenced if language in languages]


def commands_in(path: Path) -> list[list[str]]:
    """The words of every `kernels-neuron ...` that a document shows, in a block or between backticks."""
    lines = [line.split("#")[0].strip() for block in blocks(path, "bash", "console", "") for line in block.splitlines()]
    shown = [line for line in lines if line.startswith("kernels-neuron ")]
    shown += re.findall(r"`(kernels-neuron [^`]*)`", path.read_text())
    return [command.split() for command in shown]


def options_of(command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}


def test_the_readme_lists_every_command_and_no_other():
    listed = re.findall(r"^\| `kernels-neuron (\w+)` \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert listed == list(COMMANDS)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_commands_in_the_documents_exist_with_their_options(path):
    for _, verb, *words in commands_in(path):
        assert verb in COMMANDS, f"{name_of(path)}: kernels-neuron {verb}"
        command = load_command(verb)
        if words and words[0] in getattr(command, "commands", {}):
            command = command.commands[words[0]]
        options = {word.split("=")[0] for word in words if word.startswith("--")}
        assert options <= options_of(command) | {"--help", "--version"}, f"{name_of(path)}: {verb} {' '.join(words)}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_make_targets_in_the_documents_exist(path):
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"(?:`|^)make (\w+)", path.read_text(), re.MULTILINE)) <= set(targets)


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_in_the_documents_lead_somewhere(path):
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", path.read_text()) if "://" not in link]
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_first_kernel_runs_as_the_page_says(tmp_path):
    first, refused, *_ = blocks(FIRST, "python")
    (tmp_path / "first.py").write_text(first + refused)
    done = subprocess.run([sys.executable, "first.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "largest error 0.0"
    assert "first.py:" in lines[1] and "128" in lines[1] and "200" in lines[1]
    assert lines[2].startswith("hint: ")


def test_the_first_kernel_has_ten_lines():
    kernel = blocks(FIRST, "python")[0].split("@nki.jit\n")[1].split("\n\n\n")[0]
    assert len([line for line in kernel.splitlines() if line.strip()]) <= 10


def test_the_first_kernels_test_passes_with_the_fixture_alone(tmp_path):
    first, _, test = blocks(FIRST, "python")
    (tmp_path / "test_first.py").write_text(first + "\n\n" + test)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_first.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_first_kernel_can_be_profiled(tmp_path):
    (tmp_path / "first.py").write_text(blocks(FIRST, "python")[0])
    [command] = [words for words in commands_in(FIRST) if words[1] == "profile"]
    done = subprocess.run(
        [sys.executable, "-m", "kernels_neuron.cli", *command[1:]], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and "estimated" in done.stdout, done.stderr


@pytest.mark.slow
def test_the_readmes_python_example_runs(tmp_path):
    [example] = blocks(ROOT / "README.md", "python")
    done = subprocess.run([sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "swapped" in done.stdout
