"""NKI1xx: names, arguments and conventions that an NKI version does not have yet, or no longer."""

import ast
import inspect
from collections.abc import Iterator

from kernels_neuron.sim.versions import ARGUMENTS, METHODS
from kernels_neuron.tables import unknown

from . import api
from .rule import Hit, rule
from .source import OLD_ROOT, Source, returned, short
from .target import Target, spell

Hits = Iterator[Hit]


def uses(source: Source) -> list[tuple[ast.AST, str]]:
    """(node, short name) of every use and import of something in nki, outside of a try that awaits its absence."""
    if "uses" not in source.cache:
        source.cache["uses"] = list(_uses(source))
    found = source.cache["uses"]
    assert isinstance(found, list)
    return found


def _uses(source: Source) -> Iterator[tuple[ast.AST, str]]:
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module and not awaits_absence(source, node):
            for alias in node.names:
                name = source.nki_dotted(f"{node.module}.{alias.name}")
                if name and alias.name != "*":
                    yield node, short(name)
        elif isinstance(node, ast.Attribute | ast.Name) and not isinstance(source.parents.get(node), ast.Attribute):
            name = source.nki_name(node)
            # an alias is reported where it is made: by the import, or by the assignment
            is_alias = isinstance(node, ast.Name) and node.id in _made(source, node)
            if name and not is_alias and not awaits_absence(source, node):
                yield node, short(name)


def _made(source: Source, node: ast.AST) -> set[str]:
    return {name for scope in source.scopes_of(node) for names in (scope.bound, scope.imports) for name in names}


_SUBMODULES = {short(each) for each in api.MODULES if "." in each} - {"nl", "nisa", "ncc"}
_ABSENCE = {"ImportError", "ModuleNotFoundError", "AttributeError", "NameError", "Exception", "BaseException"}


def awaits_absence(source: Source, node: ast.AST) -> bool:
    """Whether a node stands in a try, or in one of its handlers, that deals with names that are not there."""
    for parent in source.all_around(node):
        if isinstance(parent, ast.Try):
            for handler in parent.handlers:
                caught = (
                    {each.id for each in ast.walk(handler.type) if isinstance(each, ast.Name)} if handler.type else None
                )
                if caught is None or caught & _ABSENCE:
                    return True
    return False


@rule(
    "NKI101", "name that NKI does not have", "error", since="0.1",
    why="the name is looked up when the kernel is traced, and is not there [API reference]",
    fix="use a name of the API reference; docs/coverage.md lists them",
)  # fmt: skip
def unknown_name(source: Source, target: Target) -> Hits:
    """A name of nki, nl, nisa or ncc that no version has."""
    for node, name in uses(source):
        module, _, rest = name.partition(".")
        if any(f"{name}.".startswith(f"{each}.") for each in _SUBMODULES):
            continue
        if rest and not api.exists(name) and not any(api.retired(name, (9, 9))):
            yield Hit(node, f"{module} has no {rest}: {unknown('name', rest.split('.')[0], api.names(module))}")


@rule(
    "NKI102", "name that comes with a later version", "error", since="0.1",
    why="a compiler of the older version does not know the name [release notes]",
    fix="write it with what the version has, or lint with --nki for the later one",
)  # fmt: skip
def name_too_new(source: Source, target: Target) -> Hits:
    """A name that the version does not have yet."""
    for node, name in uses(source):
        since = api.too_new(name, target.version)
        if since:
            yield Hit(node, f"{name} comes with NKI {since}, this is for {spell(target.version)}")


@rule(
    "NKI103", "retired name", "error", since="0.1",
    why="the name is gone; the older form does not compile [migration guide]",
    fix="use its successor",
)  # fmt: skip
def retired_name(source: Source, target: Target) -> Hits:
    """A name that the version no longer has."""
    for node, name in uses(source):
        for part, since, instead in api.retired(name, target.version):
            yield Hit(node, f"{part} is gone since NKI {since}", instead)


@rule(
    "NKI104", "deprecated name", "warning", since="0.3",
    why="a later version drops it [release notes]",
    fix="use its successor",
)  # fmt: skip
def deprecated_name(source: Source, target: Target) -> Hits:
    """A name that the version still has, and warns about."""
    for node, name in uses(source):
        if any(api.retired(name, target.version)):
            continue
        for part, since, instead in api.retired(name, target.version, api.DEPRECATED):
            yield Hit(node, f"{part} is deprecated since NKI {since}", instead)


@rule(
    "NKI105", "retired argument", "error", since="0.2",
    why="an unknown keyword is an error since 0.2; 0.1 let it pass without effect [release notes]",
    fix="use what replaced it",
)  # fmt: skip
def retired_argument(source: Source, target: Target) -> Hits:
    """An argument that a call once had."""
    for call, name in _calls(source):
        for keyword in call.keywords:
            known = api.signature(name)
            if keyword.arg is None or (known and keyword.arg in known.parameters):
                continue
            found = api.retired_argument(name, keyword.arg)
            if found and target.version >= found[0]:
                yield Hit(keyword.value, f"{name} has no {keyword.arg} since NKI {spell(found[0])}", found[1])


@rule(
    "NKI106", "argument that comes with a later version", "error", since="0.2",
    why="an unknown keyword is an error since 0.2 [release notes]",
    fix="leave it out, or lint with --nki for the later version",
)  # fmt: skip
def argument_too_new(source: Source, target: Target) -> Hits:
    """An argument that the version does not have yet."""
    for call, name in _calls(source):
        for keyword in call.keywords:
            since = ARGUMENTS.get(name, {}).get(keyword.arg or "")
            if since and target.version < since:
                message = f"{name} takes {keyword.arg} from NKI {spell(since)} on, this is for {spell(target.version)}"
                yield Hit(keyword.value, message)


@rule(
    "NKI107", "call that does not fit the signature", "error", since="0.2",
    why="an unknown keyword, a missing operand or one too many is an error when the kernel is traced [release notes]",
    fix="write the call as the API reference has it",
)  # fmt: skip
def call_signature(source: Source, target: Target) -> Hits:
    """A call with arguments the function does not have, or without some that it needs."""
    for call, name in _calls(source):
        signature = api.signature(name)
        if signature is None or any(api.retired(name, target.version)):
            continue
        problem = _problem(call, name, signature, target)
        if problem:
            hint = f"the signature is {name}{_plain(signature)}"
            if problem.startswith("misses") and not isinstance(source.parents[call], ast.Expr):
                hint = "instructions write into dst, their first argument, and return no tile since NKI 0.1"
            yield Hit(call, f"{name} {problem}", hint)


def _problem(call: ast.Call, name: str, signature: inspect.Signature, target: Target) -> str | None:
    keywords = [keyword.arg for keyword in call.keywords]
    for keyword in keywords:
        if keyword and keyword not in signature.parameters and not api.retired_argument(name, keyword):
            return f"takes no argument {keyword}"
    if None in keywords or any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    positional = [p for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY]
    if len(call.args) > len(positional):
        return f"takes at most {len(positional)} arguments, got {len(call.args)}"
    by_position = [parameter.name for parameter in positional[: len(call.args)]]
    twice = [parameter for parameter in by_position if parameter in keywords]
    if twice:
        return f"gets {twice[0]} twice"
    missing = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty and parameter.name not in (*by_position, *keywords)
    ]
    # what was retired may stand where something else is missing: one finding is enough
    if missing and not any(keyword and api.retired_argument(name, keyword) for keyword in keywords):
        return f"misses {', '.join(missing)}"
    return None


def _plain(signature: inspect.Signature) -> str:
    parameters = [
        each.name if each.default is each.empty else f"{each.name}=.." for each in signature.parameters.values()
    ]
    return f"({', '.join(parameters)})"


def _calls(source: Source) -> Iterator[tuple[ast.Call, str]]:
    for node in source.nodes:
        name = source.called(node)
        if name and isinstance(node, ast.Call) and not awaits_absence(source, node):
            yield node, short(name)


@rule(
    "NKI108", "old namespace", "error", since="0.4",
    why="neuronxcc.nki inside a kernel is a compile error since 0.4 [release notes]",
    fix="import nki, nki.language, nki.isa",
)  # fmt: skip
def old_namespace(source: Source, target: Target) -> Hits:
    """An import of neuronxcc.nki."""
    yield from _old_imports(source)


@rule(
    "NKI109", "old namespace, still importable", "warning", since="0.1", until="0.4",
    why="neuronxcc.nki became nki in 0.1, and is refused inside a kernel from 0.4 on [release notes]",
    fix="import nki, nki.language, nki.isa",
)  # fmt: skip
def old_namespace_before(source: Source, target: Target) -> Hits:
    """An import of neuronxcc.nki, before it is refused."""
    yield from _old_imports(source)


def _old_imports(source: Source) -> Hits:
    for node in source.nodes:
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        for module in modules:
            if f"{module}.".startswith(f"{OLD_ROOT}.") and not awaits_absence(source, node):
                yield Hit(node, f"{module} is the namespace of the Beta, NKI is imported as nki")
                break


@rule(
    "NKI110", "module that no documentation names", "note", since="0.3",
    why="public kernels import it, and no reference page promises that it stays [nki-library sources]",
    fix="import from nki.isa or nki.language",
)  # fmt: skip
def undocumented_module(source: Source, target: Target) -> Hits:
    """An import of a module path that only public kernels use."""
    for node in source.nodes:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        for module in modules:
            if module in ("nki.isa.constants", "nki.dtype", "nki.language.dtypes") and not getattr(node, "level", 0):
                yield Hit(node, f"{module} is documented nowhere")


_ENUMS = {"engine", "dge_mode", "oob_mode", "reduce_cmd", "perf_mode", "dma_engine"}


@rule(
    "NKI111", "literal where a named constant belongs", "error", since="0.3",
    why="raw numbers and strings for enums and buffers are rejected since 0.3, and dge_mode was renumbered "
    "[migration guide]",
    fix="name the member: nisa.dge_mode.hwdge, nl.sbuf",
)  # fmt: skip
def literal_for_constant(source: Source, target: Target) -> Hits:
    """A number or a string for an enum, a string for a buffer."""
    for call, name in _calls(source):
        for keyword in call.keywords:
            value = keyword.value
            if not isinstance(value, ast.Constant) or value.value is None or isinstance(value.value, bool):
                continue
            # the members of matmul_perf_mode are strings, and public kernels pass them as such
            is_enum = name.startswith(("nisa.", "ncc.")) and keyword.arg in _ENUMS and value.value != "double_row"
            if is_enum or (name.startswith("nl.") and keyword.arg == "buffer"):
                yield Hit(value, f"{name} takes a named constant as {keyword.arg}, got {value.value!r}")


@rule(
    "NKI112", "output in private HBM", "error", since="0.3",
    why="what a kernel returns lives in shared HBM; nl.hbm fails to compile since 0.3 [migration guide]",
    fix="allocate it with buffer=nl.shared_hbm and dma_copy into it",
)  # fmt: skip
def private_output(source: Source, target: Target) -> Hits:
    """A kernel that returns a tensor it allocated in nl.hbm or nl.private_hbm."""
    yield from _outputs(source, ("nl.hbm", "nl.private_hbm"))


@rule(
    "NKI117", "output on the chip", "warning", since="0.3",
    why="a launched kernel returns tensors in shared HBM; only a function that another kernel calls may return a tile, "
    "and that one needs no nki.jit [migration guide]",
    fix="copy it into a tensor with buffer=nl.shared_hbm, or take the decorator off",
)  # fmt: skip
def output_on_chip(source: Source, target: Target) -> Hits:
    """A function with nki.jit that returns a tile it allocated in SBUF or PSUM."""
    yield from _outputs(source, ("nl.sbuf", "nl.psum"))


def _outputs(source: Source, buffers: tuple[str, ...]) -> Hits:
    called = {
        getattr(node.func, "id", getattr(node.func, "attr", ""))
        for node in source.kernel_nodes
        if isinstance(node, ast.Call)
    }
    for function in source.entries:
        allocated = {} if function.name in called else source.allocations(function)
        for node in source.inside(function):
            for name in returned(node):
                where = source.buffer_of(allocated[name]) if name in allocated else None
                if where in buffers:
                    yield Hit(node, f"{function.name} returns {name}, which is allocated in {where}")


@rule(
    "NKI113", "kernel called from a kernel", "warning", since="0.1",
    why="sub-kernels must not carry nki.jit: only the function that is launched does; public kernels of 0.3 have some "
    "that do [migration guide, nki-library]",
    fix="take the decorator off, or call the undecorated function",
)  # fmt: skip
def nested_jit(source: Source, target: Target) -> Hits:
    """A function with @nki.jit called inside kernel code."""
    decorated = {each.name: each for each in source.entries if each.decorator_list}
    for function in source.kernel_code:
        for node in source.inside(function):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in decorated:
                callee = decorated[node.func.id]
                if not any(node.func.id in scope.bound for scope in list(source.scopes_of(node))[:-1]):
                    yield Hit(node, f"{callee.name} is decorated with nki.jit and is called inside {function.name}")


@rule(
    "NKI114", "nki.jit(mode=) has no effect", "warning", since="0.3",
    why="the argument is ignored since 0.3 [migration guide]",
    fix="leave it out",
)  # fmt: skip
def jit_mode(source: Source, target: Target) -> Hits:
    """nki.jit(mode=..)."""
    for call, name in _calls(source):
        if name == "nki.jit":
            yield from (Hit(each.value, "nki.jit ignores mode") for each in call.keywords if each.arg == "mode")


@rule(
    "NKI115", "function that no chip has", "error", since="0.3",
    why="the vendor's simulator runs it, and no instruction does [release notes, known issues]",
    fix="divide by multiplying with nl.reciprocal; take a remainder from x - y * floor(x / y)",
)  # fmt: skip
def not_on_hardware(source: Source, target: Target) -> Hits:
    """nl.divide, nl.mod, nl.fmod."""
    for node, name in uses(source):
        if name in ("nl.divide", "nl.mod", "nl.fmod"):
            yield Hit(node, f"{name} exists in simulation only")


@rule(
    "NKI116", "tensor method that comes with a later version", "error", since="0.1",
    why="tensors of the older version have no such view [release notes]",
    fix="slice with tile[..] or use .ap(), or lint with --nki for the later version",
)  # fmt: skip
def method_too_new(source: Source, target: Target) -> Hits:
    """A view method on a tile that this function allocated."""
    for node in source.kernel_nodes:
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        since = METHODS.get(node.func.attr)
        if since and target.version < since and source.is_tile(node.func.value):
            yield Hit(node, f"tensors have .{node.func.attr} from NKI {spell(since)} on")
