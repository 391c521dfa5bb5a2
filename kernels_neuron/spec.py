"""spec.toml: what a kernel computes on, its workloads and limits; and the cases made of them."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .api import ROUNDINGS
from .case import Case
from .dtypes import dtype as nki_dtype
from .errors import FileProblems, UnsupportedDtype, UsageError
from .expression import evaluate
from .inputs import LAYOUTS, Tensor, default_fill, fill_problem, layout_problem
from .tables import Table, read_toml, show, unknown
from .tiles import Tune, read_tune
from .tolerance import DEFAULTS, KINDS, Tolerance, read_tolerance

__all__ = ["Case", "Input", "Spec", "Workload", "evaluate"]

SPEC = "spec.toml"
USES = ("test", "bench", "bench-only")
CASE_DTYPE = "$dtype"
_LETTER = re.compile(r"[A-Z][A-Za-z0-9_]*")
_WORKLOAD_KEYS = ("name", "use", "args", "layout", "fill", "dtype", "dtypes", "without", "with")


@dataclass(frozen=True)
class Input:
    """One input of a kernel: its shape in letters, integers and expressions; its dtypes, default first.

    parameter  a model gives the same tensor in every call, and the kernel may keep what it makes of it
    """

    name: str
    shape: tuple[int | str, ...]
    dtypes: tuple[str, ...]
    optional: bool
    parameter: bool = False


@dataclass(frozen=True)
class Workload:
    """Named sizes and settings: what one [[workload]] of spec.toml says. `dtypes` are those it is made for."""

    name: str
    use: str
    sizes: dict[str, int]
    args: dict[str, Any]
    layout: dict[str, str]
    fill: dict[str, str]
    dtype: dict[str, str]
    dtypes: tuple[str, ...]
    absent: tuple[str, ...]


@dataclass(frozen=True)
class Spec:
    """One kernel's spec.toml.

    strides  per input, the layouts taken without a copy
    tune     the tile parameters to search, or None where the kernel declares none
    """

    kernel: str
    path: Path
    summary: str
    entry: str
    source: str
    dtypes: tuple[str, ...]
    kind: str
    flops: str
    contraction: str | None
    magnitude_args: dict[str, Any]
    nki: tuple[str, ...]
    archs: tuple[str, ...]
    serves: tuple[str, ...]
    rounding: str
    inputs: dict[str, Input]
    limits: dict[str, tuple[int, int]]
    strides: dict[str, tuple[str, ...]]
    tolerances: dict[str, Tolerance]
    workloads: tuple[Workload, ...]
    tune: Tune | None

    @property
    def loose(self) -> dict[str, str]:
        """The reasons for tolerances beyond the default, keyed by dtype."""
        return {dtype: tolerance.loose for dtype, tolerance in self.tolerances.items() if tolerance.loose}

    def cases(self, dtype: str | None = None, use: str | None = None) -> list[Case]:
        """The cases, workload by workload.

        dtype   only this one; refused when the kernel does not take it
        use     "test": those verify runs; "bench": those bench times; None: all
        """
        if dtype is not None and dtype not in self.dtypes:
            raise UsageError(f"{self.kernel}: {unknown('dtype', dtype, self.dtypes)}")
        if use not in (None, "test", "bench"):
            raise UsageError(unknown("use", str(use), ("test", "bench")))
        left_out = {"test": "bench-only", "bench": "test"}.get(use or "")
        return [
            self.case(workload, name)
            for workload in self.workloads
            for name in workload.dtypes
            if workload.use != left_out and dtype in (None, name)
        ]

    def case(self, workload: Workload, dtype: str) -> Case:
        """The case of one workload in one dtype."""
        tensors = []
        for given in self.inputs.values():
            if given.name in workload.absent:
                continue
            chosen = _input_dtype(given, workload, dtype)
            shape = tuple(evaluate(axis, workload.sizes) for axis in given.shape)
            fill = workload.fill.get(given.name) or default_fill(chosen)
            layout = workload.layout.get(given.name, "contiguous")
            tensors.append(Tensor(given.name, shape, chosen, layout, fill, given.parameter))
        return Case(
            kernel=self.kernel,
            workload=workload.name,
            dtype=dtype,
            entry=self.entry,
            use=workload.use,
            sizes=workload.sizes,
            args=workload.args,
            inputs=tuple(tensors),
            absent=workload.absent,
            flops=evaluate(self.flops, workload.sizes),
            terms=evaluate(self.contraction, workload.sizes) if self.contraction else 0,
            tolerance=self.tolerances[dtype],
            magnitude_args=self.magnitude_args,
        )

    @classmethod
    def read(cls, folder: Path | str) -> "Spec":
        """Read the spec.toml of a kernel folder. Refuses it with everything that is wrong in it, at once."""
        folder = Path(folder)
        path = folder / SPEC
        problems: list[str] = []
        table = Table(read_toml(path, f"every kernel folder has a {SPEC}"), "", problems)
        spec = _read_spec(table, folder)
        if spec and not problems:
            problems += _signature_problems(spec, folder / "reference.py")
        if problems or spec is None:
            raise FileProblems(path, problems)
        return spec


def _letters(*expressions: int | str | None) -> list[str]:
    found = [letter for text in expressions if isinstance(text, str) for letter in _LETTER.findall(text)]
    return list(dict.fromkeys(found))


def _read_spec(table: Table, folder: Path) -> Spec | None:
    dtypes = table.take_strings("dtypes", required=True)
    for i, name in enumerate(dtypes):
        table.one_of(f"dtypes[{i}]", name, DEFAULTS["matmul"], "dtype")
    kind = table.one_of("kind", table.take("kind", str, required=True), KINDS, "kind")
    inputs = _read_inputs(table.table("inputs"))
    if not inputs:
        table.problem("inputs", "is missing, and a kernel has at least one input")
    flops = table.take("flops", str, required=True)
    contraction = table.take("contraction", str, required=kind == "matmul")
    for key, text in (("flops", flops), ("contraction", contraction)):
        _check_expression(table, key, text)
    letters = _letters(*(axis for given in inputs.values() for axis in given.shape), flops, contraction)
    limits = _read_limits(table.table("limits"), letters)
    known = tuple(name for name in dtypes if name in DEFAULTS["matmul"])
    tolerances = read_tolerance(table.table("tolerance"), kind, known) if kind else {}
    always = _letters(flops, contraction)
    workloads = _read_workloads(table, inputs, known, letters, always, limits)
    spec = Spec(
        kernel=folder.absolute().name,
        path=folder / SPEC,
        summary=table.take("summary", str, "", required=True),
        entry=table.take("entry", str, "", required=True),
        source=table.take("source", str, "", required=True),
        dtypes=dtypes,
        kind=kind or "elementwise",
        flops=flops or "0",
        contraction=contraction,
        magnitude_args=table.take("magnitude_args", dict, {}),
        nki=table.take_strings("nki", ("0.7",)),
        archs=table.take_strings("archs", ("trn2", "trn3")),
        serves=table.take_strings("serves"),
        rounding=table.one_of("rounding", table.take("rounding", str, "once"), ROUNDINGS, "rounding") or "once",
        inputs=inputs,
        limits=limits,
        strides=_read_strides(table.table("strides"), inputs),
        tolerances=tolerances,
        workloads=tuple(workloads),
        tune=read_tune(table.table("tune"), letters) if "tune" in table.data else None,
    )
    table.done()
    return spec


def _check_expression(table: Table, key: str, text: int | str | None) -> None:
    try:
        evaluate(text or 0, dict.fromkeys(_letters(text), 1))
    except ValueError as error:
        table.problem(key, str(error))


def _read_inputs(table: Table) -> dict[str, Input]:
    inputs = {}
    for name in table.data:
        table.take(name, dict)
        if not name.isidentifier() or not isinstance(table.data[name], dict):
            table.problem(name, 'has to be a parameter name with { shape = ["N", "H"], dtype = "$dtype" }')
            continue
        row = table.table(name)
        shape = tuple(row.take("shape", list, [], required=True))
        for i, axis in enumerate(shape):
            if not isinstance(axis, int | str) or isinstance(axis, bool):
                row.problem(f"shape[{i}]", f"has to be a letter, an integer or an expression, got {show(axis)}")
            else:
                _check_expression(row, f"shape[{i}]", axis)
        shape = tuple(axis for axis in shape if isinstance(axis, int | str))
        flags = [row.take(flag, bool, False) for flag in ("optional", "parameter")]
        inputs[name] = Input(name, shape, _read_input_dtypes(row), *flags)
        row.done()
    return inputs


def _read_input_dtypes(row: Table) -> tuple[str, ...]:
    if isinstance(row.data.get("dtype"), list):
        names = row.take_strings("dtype", required=True)
    else:
        one = row.take("dtype", str, required=True)
        names = (one,) if one else ()
    for name in names:
        try:
            if name != CASE_DTYPE and nki_dtype(name).row.torch is None:
                row.problem("dtype", f"torch has no dtype for {name}")
        except UnsupportedDtype as error:
            row.problem("dtype", f"{error}; {error.hint}, or {CASE_DTYPE}")
    return names or (CASE_DTYPE,)


def _read_limits(table: Table, letters: list[str]) -> dict[str, tuple[int, int]]:
    limits = {}
    for letter in table.data:
        ends = table.take(letter, list, [])
        if table.one_of(letter, letter, letters, "letter") is None:
            continue
        if len(ends) != 2 or not all(type(end) is int for end in ends) or ends[0] > ends[1]:
            table.problem(letter, f"has to be [least, greatest], got {show(ends)}")
        else:
            limits[letter] = (ends[0], ends[1])
    return limits


def _read_strides(table: Table, inputs: dict[str, Input]) -> dict[str, tuple[str, ...]]:
    strides = {}
    for name in table.data:
        table.one_of(name, name, inputs, "input")
        strides[name] = table.take_strings(name)
        for i, layout in enumerate(strides[name]):
            table.one_of(f"{name}[{i}]", layout, LAYOUTS, "layout")
    return strides


def _read_workloads(
    table: Table,
    inputs: dict[str, Input],
    dtypes: tuple[str, ...],
    letters: list[str],
    always: list[str],
    limits: dict[str, tuple[int, int]],
) -> list[Workload]:
    rows = table.take("workload", list, [], required=True)
    workloads: list[Workload] = []
    for i, data in enumerate(rows):
        name = data.get("name") if isinstance(data, dict) else None
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9_]+", name):
            table.problem(f"workload[{i}]", "needs a name of lower-case letters, digits and underscores")
            continue
        row = Table(data, f"workload.{name}", table.problems)
        if name in [other.name for other in workloads]:
            row.problem("name", "is used twice")
        workload = _read_workload(row, inputs, dtypes, letters)
        workloads.append(workload)
        _check_sizes(row, workload, inputs, always, limits)
        _check_tensors(row, workload, inputs)
        row.done()
    return workloads


def _read_workload(row: Table, inputs: dict[str, Input], dtypes: tuple[str, ...], letters: list[str]) -> Workload:
    sizes = {}
    for key in row.data:
        if key not in _WORKLOAD_KEYS and _LETTER.fullmatch(key) and row.one_of(key, key, letters, "letter"):
            sizes[key] = row.take(key, int, 1)
        elif key not in _WORKLOAD_KEYS and _LETTER.fullmatch(key):
            row.take(key, int)
    chosen = row.take_strings("dtypes", dtypes)
    for i, name in enumerate(chosen):
        row.one_of(f"dtypes[{i}]", name, dtypes, "dtype")
    return Workload(
        name=row.take("name", str, ""),
        use=row.one_of("use", row.take("use", str, "test"), USES, "use") or "test",
        sizes=sizes,
        args=row.take("args", dict, {}),
        layout=_by_input(row, "layout", inputs),
        fill=_by_input(row, "fill", inputs),
        dtype=_by_input(row, "dtype", inputs),
        dtypes=tuple(name for name in dtypes if name in chosen),
        absent=_read_absent(row, inputs),
    )


def _by_input(row: Table, key: str, inputs: dict[str, Input]) -> dict[str, str]:
    table = row.table(key)
    values = {name: table.take(name, str, "") for name in table.data}
    return {name: value for name, value in values.items() if table.one_of(name, name, inputs, "input") and value}


def _read_absent(row: Table, inputs: dict[str, Input]) -> tuple[str, ...]:
    optional = [given.name for given in inputs.values() if given.optional]
    named = {key: row.take_strings(key) for key in ("with", "without")}
    for key, names in named.items():
        for i, name in enumerate(names):
            row.one_of(f"{key}[{i}]", name, optional, "optional input")
    if "with" in row.data and "without" in row.data:
        row.problem("without", "is given together with `with`; one of them says it all")
    kept = named["with"] if "with" in row.data else [name for name in optional if name not in named["without"]]
    return tuple(name for name in optional if name not in kept)


def _check_sizes(
    row: Table,
    workload: Workload,
    inputs: dict[str, Input],
    always: list[str],
    limits: dict[str, tuple[int, int]],
) -> None:
    present = [given for given in inputs.values() if given.name not in workload.absent]
    needed = dict.fromkeys([*_letters(*(axis for given in present for axis in given.shape)), *always])
    missing = [letter for letter in needed if letter not in row.data]
    for letter in missing:
        row.problem(letter, "is missing, and has to be an integer")
    for letter, size in workload.sizes.items():
        least, most = limits.get(letter, (0, size))
        if not least <= size <= most:
            row.problem(letter, f"is {size}, and the limits of this kernel are {least} to {most}")
    if missing:
        return
    for given in present:
        for axis in given.shape:
            try:
                if evaluate(axis, workload.sizes) < 0:
                    row.problem(given.name, f"axis {axis} is {evaluate(axis, workload.sizes)}")
            except ValueError as error:
                row.problem(given.name, str(error))


def _check_tensors(row: Table, workload: Workload, inputs: dict[str, Input]) -> None:
    for key, named in (("layout", workload.layout), ("fill", workload.fill), ("dtype", workload.dtype)):
        for name in named:
            if name in workload.absent:
                row.problem(f"{key}.{name}", "is given for an input this workload leaves out")
    for name, layout in workload.layout.items():
        if problem := layout_problem(layout, len(inputs[name].shape)):
            row.problem(f"layout.{name}", problem)
    for name, chosen in workload.dtype.items():
        row.one_of(f"dtype.{name}", chosen, inputs[name].dtypes, f"dtype of {name}")
    for name, fill in workload.fill.items():
        for dtype in workload.dtypes[:1]:
            try:
                problem = fill_problem(fill, _input_dtype(inputs[name], workload, dtype))
            except UnsupportedDtype:
                continue  # reported with the input
            if problem:
                row.problem(f"fill.{name}", problem)


def _input_dtype(given: Input, workload: Workload, dtype: str) -> str:
    chosen = workload.dtype.get(given.name, given.dtypes[0])
    return dtype if chosen == CASE_DTYPE else chosen


def _signature_problems(spec: Spec, path: Path) -> list[str]:
    """Inputs and arguments that the reference of this kernel has no parameter for."""
    if not path.is_file():
        return []
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError as error:
        return [f"entry: reference.py:{error.lineno} is not Python: {error.msg}"]
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if spec.entry not in functions:
        return [f"entry: {unknown('function of reference.py', spec.entry, functions)}"]
    arguments = functions[spec.entry].args
    names = [arg.arg for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    used = [("inputs", name) for name in spec.inputs]
    used += [(f"workload.{work.name}.args", name) for work in spec.workloads for name in work.args]
    used += [("magnitude_args", name) for name in spec.magnitude_args]
    noun = f"parameter of {spec.entry} in reference.py"
    return [f"{where}.{name}: {unknown(noun, name, names)}" for where, name in used if name not in names]
