"""The `kernels-neuron` command: finds the module of a verb, and turns errors into two lines and an exit status."""

import importlib
import sys
import traceback
from collections.abc import Sequence
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from kernels_neuron.errors import KernelsNeuronError, UsageError

from .output import print_json

# verb -> module of kernels_neuron.cli, in the order of --help; the module has `run`, or `app` for a group of commands
COMMANDS: dict[str, str] = {
    "demo": "demo",
    "list": "list",
    "verify": "verify",
    "lint": "lint",
    "profile": "profile",
    "bench": "bench",
    "tune": "tune",
    "build": "build",
    "check": "check",
    "publish": "publish",
    "registry": "registry",
    "prefetch": "prefetch",
    "new": "new",
    "doctor": "doctor",
}


def load_command(verb: str) -> Any:
    """The click command of one verb. Only its own module is imported, so that `--help` and `list` stay quick."""
    module = importlib.import_module(f"kernels_neuron.cli.{COMMANDS[verb]}")
    group = getattr(module, "app", None)
    if group is None:
        group = typer.Typer(add_completion=False, rich_markup_mode=None)
        group.command(name=verb)(module.run)
    command = get_command(group)
    command.name = verb
    for each in (command, *getattr(command, "commands", {}).values()):
        _move_example_to_the_end(each)
    return command


def _move_example_to_the_end(command: Any) -> None:
    text, heading, example = (command.help or "").partition("Example:")
    if heading:
        command.help = text.rstrip("\b\n ")
        command.epilog = f"\b\n{heading}{example}"


class Verbs(TyperGroup):
    """The root command: its subcommands are the modules that COMMANDS names."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All verbs, in the order of COMMANDS."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of a verb, or None."""
        return load_command(cmd_name) if cmd_name in COMMANDS else None


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"kernels-neuron {metadata.version('kernels-neuron')}")
        raise typer.Exit(0)


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """NKI kernels for AWS Trainium: simulated, timed, published to a Hub and swapped into real models.

    \b
    Example:
      kernels-neuron demo --out out
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command line and exit: 0 fine, 1 the thing checked is not, 2 used wrongly."""
    sys.exit(run(list(sys.argv[1:] if argv is None else argv)))


def run(argv: list[str]) -> int:
    """Run one command line and return its exit status; errors are printed, never raised."""
    app = typer.Typer(cls=Verbs, add_completion=False, rich_markup_mode=None)
    app.callback()(_root)
    as_json = "--json" in argv
    try:
        status = get_command(app)(argv or ["--help"], prog_name="kernels-neuron", standalone_mode=False)
    except typer.Abort:
        return _fail("interrupted", None, as_json, 130)
    except UsageError as error:
        return _fail(str(error), error.hint, as_json, 2)
    except KernelsNeuronError as error:
        notes = getattr(error, "__notes__", [])  # the kernel's line and the rule it broke
        return _fail("\n".join([str(error), *notes]), error.hint, as_json, 1)
    except TyperException as error:  # an unknown verb or option, a missing argument
        return _fail(_lower_first(error.format_message()), _usage_hint(error), as_json, 2)
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), None, as_json, 1)
    except Exception as error:
        traceback.print_exc()
        message = f"{type(error).__name__}: {error}"
        return _fail(message, "this is a defect of kernels-neuron: report it with the lines above", as_json, 1)
    return status if isinstance(status, int) else 0


def _fail(message: str, hint: str | None, as_json: bool, status: int) -> int:
    if as_json:
        print_json({"error": message, "hint": hint})
    else:
        print(f"error: {message}" + (f"\n\nhint: {hint}" if hint else ""), file=sys.stderr)
    return status


def _usage_hint(error: TyperException) -> str:
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "kernels-neuron"
    return f"see `{path} --help`"


def _lower_first(text: str) -> str:
    return (text[:1].lower() + text[1:]).rstrip(".")
