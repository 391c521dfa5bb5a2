"""Checked reading of the TOML files people write: every problem at once, each with its key path."""

import difflib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .errors import FileProblems, UsageError

# what a value is called in a message, by the Python type tomllib gives it
_WORDS = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def read_toml(path: Path, missing_hint: str) -> dict[str, Any]:
    """The tables of a TOML file. Refuses a file that is not there, is not UTF-8 or is not TOML."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise UsageError(f"there is no {path}", hint=missing_hint) from None
    except UnicodeDecodeError as error:
        raise FileProblems(path, [f"byte {error.start}: not UTF-8"]) from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise FileProblems(path, [f"not TOML: {_lower_first(str(error))}"]) from None


class Table:
    """One table of a TOML file. `take` checks values and notes what is wrong; `done` notes keys nobody took."""

    def __init__(self, data: dict[str, Any], path: str, problems: list[str]) -> None:
        self.data = data
        self.path = path
        self.problems = problems
        self._taken: list[str] = []

    def at(self, key: str) -> str:
        """The key path of `key`, as problems print it."""
        return f"{self.path}.{key}" if self.path else key

    def problem(self, key: str, text: str) -> None:
        """Note what is wrong with the value of `key`."""
        self.problems.append(f"{self.at(key)}: {text}")

    def take(self, key: str, kind: type, default: Any = None, *, required: bool = False) -> Any:
        """The value of `key` if it is of `kind`, else `default`; an integer counts as a number."""
        self._taken.append(key)
        if key not in self.data:
            if required:
                self.problem(key, f"is missing, and has to be {_WORDS[kind]}")
            return default
        value = self.data[key]
        if kind is float and type(value) is int:
            return float(value)
        if type(value) is not kind:
            self.problem(key, f"has to be {_WORDS[kind]}, got {show(value)}")
            return default
        return value

    def take_strings(self, key: str, default: Iterable[str] = (), *, required: bool = False) -> tuple[str, ...]:
        """The value of `key` as a tuple of strings."""
        values = self.take(key, list, required=required)
        if values is None:
            return tuple(default)
        for i, value in enumerate(values):
            if not isinstance(value, str):
                self.problem(f"{key}[{i}]", f"has to be a string, got {show(value)}")
        return tuple(value for value in values if isinstance(value, str))

    def table(self, key: str) -> "Table":
        """The table under `key`; an empty one where there is none."""
        return Table(self.take(key, dict, {}), self.at(key), self.problems)

    def one_of(self, key: str, value: str | None, known: Iterable[str], noun: str) -> str | None:
        """`value` where it is known; else a problem with the nearest known name, and None."""
        if value is None or value in known:
            return value
        self.problem(key, unknown(noun, value, known))
        return None

    def done(self) -> None:
        """Note every key that was not taken."""
        for key in self.data:
            if key not in self._taken:
                self.problem(key, unknown("key", key, self._taken))


def unknown(noun: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that does not exist: the nearest one where there is one, else the whole list."""
    known = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"unknown {noun} {name!r}, did you mean {near[0]!r}"
    return f"unknown {noun} {name!r}, there is {', '.join(known) or 'none'}"


def show(value: Any) -> str:
    """A value as a message prints it: short, and as TOML writes it where that is not Python's way."""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
