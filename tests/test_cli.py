"""The command line as a whole: verbs, help, errors, exit statuses, printing, and what it must not import."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from kernels_neuron.cli import main as cli
from kernels_neuron.cli import output
from kernels_neuron.errors import HubError, UsageError


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def command_that(action):
    """A verb whose module calls `action`."""

    class Module:
        @staticmethod
        def run(json: bool = typer.Option(False, "--json")) -> None:
            """Do it."""
            action()

    return Module


def fail_with(error):
    def action():
        raise error

    return action


@pytest.fixture
def verb(monkeypatch):
    def put(action):
        monkeypatch.setitem(cli.COMMANDS, "fake", "fake")
        monkeypatch.setitem(sys.modules, "kernels_neuron.cli.fake", command_that(action))

    return put


def test_version_is_the_distributions(capsys):
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out.startswith("kernels-neuron 0.1.")


def test_help_lists_every_verb(capsys):
    assert cli.run([]) == 0
    text = capsys.readouterr().out
    assert [verb for verb in cli.COMMANDS if f"  {verb} " not in text] == []


@pytest.mark.parametrize("verb", cli.COMMANDS)
def test_help_fits_a_screen_and_ends_with_an_example(verb, capsys):
    assert cli.run([verb, "--help"]) == 0
    lines = capsys.readouterr().out.rstrip().splitlines()
    assert len(lines) <= 45
    if "Commands:" not in [line.strip() for line in lines]:  # a group's own commands each have theirs
        assert lines[-1].strip().startswith("kernels-neuron ") or lines[-2].strip().startswith("kernels-neuron ")


def test_an_unknown_verb_is_used_wrongly(capsys):
    assert cli.run(["bogus"]) == 2
    assert capsys.readouterr().err == "error: no such command 'bogus'\n\nhint: see `kernels-neuron --help`\n"


def test_an_unknown_option_names_the_command_in_its_hint(capsys):
    assert cli.run(["doctor", "--bogus"]) == 2
    assert "hint: see `kernels-neuron doctor --help`" in capsys.readouterr().err


def test_usage_errors_exit_with_2_and_others_with_1(verb, capsys):
    verb(fail_with(UsageError("no kernel 'x'", hint="list them")))
    assert cli.run(["fake"]) == 2
    assert capsys.readouterr().err == "error: no kernel 'x'\n\nhint: list them\n"
    verb(fail_with(HubError("the registry is down")))
    assert cli.run(["fake"]) == 1
    assert capsys.readouterr().err == "error: the registry is down\n"


def test_with_json_an_error_is_the_one_value_on_stdout(verb, capsys):
    verb(fail_with(UsageError("no kernel 'x'", hint="list them")))
    assert cli.run(["fake", "--json"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"error": "no kernel 'x'", "hint": "list them"}
    assert captured.err == ""


def test_a_command_says_with_exit_1_that_the_thing_checked_is_not(verb):
    verb(fail_with(typer.Exit(1)))
    assert cli.run(["fake"]) == 1


def test_a_file_that_cannot_be_read_is_named(verb, capsys):
    verb(lambda: Path("/no/such/file").read_text())
    assert cli.run(["fake"]) == 1
    assert capsys.readouterr().err == "error: /no/such/file: No such file or directory\n"


def test_a_defect_shows_its_traceback_and_asks_for_a_report(verb, capsys):
    verb(fail_with(ZeroDivisionError("division by zero")))
    assert cli.run(["fake"]) == 1
    text = capsys.readouterr().err
    assert "Traceback" in text and "error: ZeroDivisionError: division by zero" in text and "hint: " in text


def test_importing_the_package_and_asking_for_help_import_no_torch():
    code = "import sys, kernels_neuron; from kernels_neuron.cli.main import run; run(['--help']); run(['doctor']); "
    heavy = run_python(
        code + "print('HEAVY', [m for m in ('torch', 'transformers', 'matplotlib') if m in sys.modules])"
    )
    assert heavy.splitlines()[-1] == "HEAVY []"


def test_table_aligns_text_left_and_numbers_right(capsys):
    output.table(["kernel", "ok", "error"], [["layernorm", True, 0.5], {"kernel": "gemm", "ok": None, "error": 12.25}])
    assert capsys.readouterr().out == "kernel     ok   error\nlayernorm  yes    0.5\ngemm       -    12.25\n"


def test_json_has_null_where_a_float_is_not_a_number(capsys):
    output.print_json({"a": float("nan"), "b": [float("inf"), 1.5]})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": [None, 1.5]}


def test_progress_draws_nothing_where_stderr_is_not_a_terminal(capsys):
    with output.progress("working", 2) as bar:
        bar.advance()
        bar.describe("still working")
        bar.advance()
    assert capsys.readouterr() == ("", "")


def test_doctor_says_what_runs_here_and_finds_torch(capsys):
    assert cli.run(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] and found["path"] in ("device", "vendor-simulator", "simulator")
    assert {part["name"]: part["state"] for part in found["parts"]}["torch"] == "ok"


def test_doctor_exits_1_when_a_needed_part_is_too_old(monkeypatch, capsys):
    from kernels_neuron.flows import doctor

    known = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: "0.1" if name == "kernels" else known(name))
    assert cli.run(["doctor"]) == 1
    assert ["kernels", "0.1", ">=0.17.2", "everything", "old"] in map(str.split, capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("variables", "on", "why"),
    [
        ({"KERNELS_NEURON_SIM": "1"}, True, "KERNELS_NEURON_SIM=1 registers it"),
        ({}, False, "set KERNELS_NEURON_SIM=1, or call kernels_neuron.device.enable()"),
        ({"KERNELS_NEURON_SIM": "1", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}, False, "TORCH_DEVICE_BACKEND_AUTOLOAD=0"),
    ],
    ids=["asked", "not-asked", "forbidden"],
)
def test_doctor_says_whether_the_emulated_device_is_on(monkeypatch, capsys, variables, on, why):
    for name in ("KERNELS_NEURON_SIM", "TORCH_DEVICE_BACKEND_AUTOLOAD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cli.run(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["emulated_device"] is on and why in found["emulated_device_why"]
    assert cli.run(["doctor"]) == 0
    assert f"emulated torch device: {'on' if on else 'off'}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("installed", "variable", "path"),
    [
        ({}, None, "simulator"),
        ({"nki": "0.0.1"}, None, "simulator"),
        ({"nki": "0.7.0"}, None, "vendor-simulator"),
        ({"nki": "0.7.0"}, "1", "simulator"),
        ({"nki": "0.7.0", "torch-neuronx": "0.0.1"}, None, "vendor-simulator"),
    ],
    ids=["nothing", "placeholder", "vendor", "vendor-but-ours-asked", "vendor-without-torchneuron"],
)
def test_doctor_chooses_the_path_by_what_is_installed(monkeypatch, installed, variable, path):
    from kernels_neuron.flows import doctor

    monkeypatch.delenv("KERNELS_NEURON_SIM", raising=False)
    if variable:
        monkeypatch.setenv("KERNELS_NEURON_SIM", variable)
    monkeypatch.setattr(doctor, "_version", installed.get)
    assert doctor.chosen_path()[0] == path
