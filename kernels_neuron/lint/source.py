"""Source: a parsed file, what its names mean, and which of its functions are kernel code. Nothing of it is run."""

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from kernels_neuron.sim.isa.ops import OPS
from kernels_neuron.sim.shim import composite, elementwise

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Loop = ast.For | ast.AsyncFor | ast.While

OLD_ROOT = "neuronxcc.nki"
# where older versions kept names, and where newer ones have them
_MOVED = {
    "nki.isa.constants.": "nki.isa.",
    "nki.language.dtypes.": "nki.language.",
    "nki.dtype.": "nki.language.",
}
_SHORT = {"nki.language": "nl", "nki.isa": "nisa", "nki.collectives": "ncc"}


def canonical(dotted: str) -> str:
    """The name of NKI 0.7 for a dotted name of any version; others as they are."""
    if dotted == OLD_ROOT or dotted.startswith(OLD_ROOT + "."):
        dotted = dotted.removeprefix("neuronxcc.")
    for old, new in _MOVED.items():
        if dotted.startswith(old):
            return new + dotted.removeprefix(old)
    return dotted


def short(dotted: str) -> str:
    """`nl.load` of nki.language.load, as kernels write it."""
    for module, alias in _SHORT.items():
        if dotted == module or dotted.startswith(module + "."):
            return alias + dotted.removeprefix(module)
    return dotted


class Scope:
    """The names one function (or the module) binds: those it imports, and those it binds otherwise."""

    def __init__(self) -> None:
        self.imports: dict[str, str] = {}
        self.bound: dict[str, list[ast.expr | None]] = {}  # the values assigned; None where one is not an expression
        self.stars: list[str] = []
        self.foreign: set[str] = set()  # names declared global or nonlocal

    def bind(self, name: str, value: ast.expr | None = None) -> None:
        self.bound.setdefault(name, []).append(value)


class Source:
    """A parsed file.

    path  as findings print it
    """

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.tree = ast.parse(text, filename=path)
        self.parents: dict[ast.AST, ast.AST] = {}
        self.owners: dict[ast.AST, ast.AST] = {}  # the function, class or module whose scope a node is in
        self.nodes: list[ast.AST] = []
        self.scopes: dict[ast.AST, Scope] = {self.tree: Scope()}
        self.cache: dict[object, object] = {}
        self._resolved: dict[ast.AST, str | None] = {}
        self._stores: dict[ast.AST, frozenset[str]] = {}
        self._index()

    @classmethod
    def read(cls, path: Path, shown: str) -> "Source":
        """Parse a file; SyntaxError or ValueError where it is not Python."""
        return cls(shown, _decoded(path.read_bytes()))

    def _index(self) -> None:
        # by hand and not by recursion: generated files nest deeper than Python's stack
        todo: list[tuple[ast.AST, ast.AST]] = [(self.tree, self.tree)]
        while todo:
            node, owner = todo.pop()
            self.nodes.append(node)
            self.owners[node] = owner
            if isinstance(node, Function | ast.ClassDef):
                self.scopes[node] = Scope()
            for field, value in ast.iter_fields(node):
                inner = node if isinstance(node, Function | ast.ClassDef) and field == "body" else owner
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        self.parents[child] = node
                        todo.append((child, inner))
        self.nodes.sort(key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
        for node in self.nodes:
            self._bind(node)

    # ---- names

    def _bind(self, node: ast.AST) -> None:
        scope = self.scopes[self.owners[node]]
        match node:
            case ast.Import():
                for alias in node.names:
                    name = alias.asname or alias.name.split(".")[0]
                    scope.imports[name] = alias.name if alias.asname else name
            case ast.ImportFrom(level=0, module=str(module)):
                for alias in node.names:
                    if alias.name == "*":
                        scope.stars.append(module)
                    else:
                        scope.imports[alias.asname or alias.name] = f"{module}.{alias.name}"
            case ast.ImportFrom():
                for alias in node.names:
                    scope.bind(alias.asname or alias.name)
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=value)
            ):
                scope.bind(name, value)
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) if not self._is_plain_target(node):
                scope.bind(name)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                scope.bind(name)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                scope.bind(name)
            case ast.arg(arg=name):
                self.scopes[self.parents[self.parents[node]]].bind(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                scope.foreign.update(names)

    def _is_plain_target(self, node: ast.AST) -> bool:
        parent = self.parents[node]
        return isinstance(parent, ast.AnnAssign) or (isinstance(parent, ast.Assign) and parent.targets == [node])

    def function_of(self, node: ast.AST) -> Function | None:
        """The function whose scope a node is in. A function's name, decorators and defaults are outside of it."""
        owner = self.owners[node]
        while not isinstance(owner, Function | ast.Module):
            owner = self.owners[owner]
        return owner if isinstance(owner, Function) else None

    def scopes_of(self, node: ast.AST) -> Iterator[Scope]:
        """The scopes a name at `node` is looked up in, innermost first; functions do not see their class's names."""
        owner = self.owners[node]
        while owner is not self.tree:
            if isinstance(owner, Function) or owner is self.owners[node]:
                yield self.scopes[owner]
            owner = self.owners[owner]
        yield self.scopes[self.tree]

    def resolve(self, node: ast.expr | None) -> str | None:
        """The dotted name an expression stands for, as imported: "nki.language.load"; None for anything else."""
        if node is None:
            return None
        if node not in self._resolved:
            self._resolved[node] = self._resolve(node, 0)
        return self._resolved[node]

    def _resolve(self, node: ast.expr | None, depth: int) -> str | None:
        if isinstance(node, ast.Attribute):
            base = self._resolve(node.value, depth)
            return f"{base}.{node.attr}" if base else None
        if not isinstance(node, ast.Name) or depth > 8:
            return None
        for scope in self.scopes_of(node):
            if node.id in scope.foreign:
                continue
            if node.id in scope.bound:
                values = scope.bound[node.id]
                # `load = nl.load`, bound once, is another name for the same thing
                is_alias = len(values) == 1 and isinstance(values[0], ast.Name | ast.Attribute)
                if is_alias and node.id not in scope.imports:
                    return self._resolve(values[0], depth + 1)
                return None
            if node.id in scope.imports:
                return scope.imports[node.id]
            for module in scope.stars:
                if canonical(module) in _SHORT:
                    return f"{module}.{node.id}"
        return None

    def nki_name(self, node: ast.expr | None) -> str | None:
        """The canonical dotted name where an expression stands for something of nki, else None."""
        found = self.resolve(node)
        return self.nki_dotted(found) if found else None

    def nki_dotted(self, dotted: str) -> str | None:
        """The canonical form of a dotted name of nki, of any version; None for other names."""
        return canonical(dotted) if f"{dotted}.".startswith(("nki.", f"{OLD_ROOT}.")) else None

    def called(self, node: ast.AST | None) -> str | None:
        """`nki_name` of the function a call calls; None for other nodes."""
        return self.nki_name(node.func) if isinstance(node, ast.Call) else None

    # ---- kernel code

    @cached_property
    def functions(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Every named function, methods and nested ones included."""
        return [node for node in self.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    @cached_property
    def entries(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The functions that are launched: decorated with nki.jit, or passed to nki.jit or nki.simulate."""
        passed = {
            argument.id
            for node in self.nodes
            if self.called(node) in ("nki.jit", "nki.simulate") and isinstance(node, ast.Call)
            for argument in node.args[:1]
            if isinstance(argument, ast.Name)
        }
        return [each for each in self.functions if each.name in passed or any(map(self._is_jit, each.decorator_list))]

    @cached_property
    def launched(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The entries that nothing but the host calls: they return what they allocate in shared HBM.

        Public kernels of 0.3 decorate functions with nki.jit that other kernels call, with tiles.
        """
        called = {
            _last_name(node.func) for function in self.kernel_code for node in self.inside(function)
            if isinstance(node, ast.Call)
        }  # fmt: skip
        return [
            each
            for each in self.entries
            if each.name not in called
            and any(
                isinstance(node, ast.Return) and self._is_shared(each, name)
                for node in self.inside(each)
                for name in returned(node)
            )
        ]

    def _is_shared(self, function: ast.AST, name: str) -> bool:
        values = self.scopes[function].bound.get(name, [])
        return any(isinstance(value, ast.Call) and self.buffer_of(value) == "nl.shared_hbm" for value in values)

    def _is_jit(self, decorator: ast.expr) -> bool:
        if isinstance(decorator, ast.Call):
            if self.resolve(decorator.func) == "functools.partial":
                return any(self._is_jit(argument) for argument in decorator.args)
            decorator = decorator.func
        found = self.resolve(decorator) or ""
        return canonical(found) == "nki.jit" or found.rpartition(".")[2] == "nki_jit"

    @cached_property
    def kernel_code(self) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """Entries, functions that issue instructions or allocate tiles, and what these call in this file."""
        by_name: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = {}
        for function in self.functions:
            by_name.setdefault(function.name, []).append(function)
        todo = [each for each in self.functions if each in self.entries or self._issues(each)]
        found: set[ast.AST] = set()
        while todo:
            function = todo.pop()
            if function in found:
                continue
            found.add(function)
            for node in self.inside(function):
                # called, or handed on as a value: bodies of loops on the device
                if isinstance(node, ast.Call | ast.Name):
                    todo += by_name.get(_last_name(node.func if isinstance(node, ast.Call) else node), ())
        return [each for each in self.functions if each in found]

    def _issues(self, function: ast.AST) -> bool:
        for node in self.inside(function):
            name = self.called(node) or ""
            if name.startswith(("nki.isa.", "nki.collectives.")) and name not in _HOST:
                return True
            if name in ("nki.language.ndarray", "nki.language.load", "nki.language.store", "nki.language.zeros"):
                return True
        return False

    @cached_property
    def kernel_nodes(self) -> list[ast.AST]:
        """Every node of kernel code, each once, in the order of the text."""
        found = {node for function in self.kernel_code for node in self.inside(function)}
        return [node for node in self.nodes if node in found]

    def inside(self, function: ast.AST) -> list[ast.AST]:
        """The nodes of a function's body, without those of functions with a name that are nested in it."""
        return self._bodies.get(function, [])

    @cached_property
    def _bodies(self) -> dict[ast.AST, list[ast.AST]]:
        bodies: dict[ast.AST, list[ast.AST]] = {}
        for node in self.nodes:
            owner = self.function_of(node)
            while isinstance(owner, ast.Lambda):
                owner = self.function_of(owner)
            if owner is not None:
                bodies.setdefault(owner, []).append(node)
        return bodies

    # ---- places

    def stores(self, node: ast.AST) -> frozenset[str]:
        """The names that a statement binds, or deletes."""
        found = self._stores.get(node)
        if found is None:
            names = (each for each in ast.walk(node) if isinstance(each, ast.Name))
            found = frozenset(each.id for each in names if not isinstance(each.ctx, ast.Load))
            self._stores[node] = found
        return found

    def loops_of(self, node: ast.AST) -> list[Loop]:
        """The loops around a node within its function, innermost first."""
        return [each for each in self.around(node) if isinstance(each, Loop)]

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The statements and expressions around a node within its function, innermost first."""
        parent = self.parents.get(node)
        while parent is not None and not isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield parent
            parent = self.parents.get(parent)

    def all_around(self, node: ast.AST) -> Iterator[ast.AST]:
        """Everything around a node, up to the module."""
        parent = self.parents.get(node)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    # ---- tiles

    def is_tile(self, node: ast.expr) -> bool:
        """Whether an expression is a tensor for sure: a view of a name that only ever holds a new tile."""
        name = base_name(node)
        if name is None or self.nki_name(node):
            return False
        for scope in self.scopes_of(node):
            if name in scope.bound:
                values = scope.bound[name]
                made = all(value is not None and self.called(value) in MAKES_TILE for value in values)
                return made or (values == [None] and name in self._tensor_arguments.get(scope, ()))
        return False

    @cached_property
    def _tensor_arguments(self) -> dict[Scope, set[str]]:
        """The arguments of launched kernels that are tensors for sure: their shape or dtype is read."""
        found: dict[Scope, set[str]] = {}
        for function in self.launched:
            arguments = {each.arg for each in [*function.args.posonlyargs, *function.args.args]}
            found[self.scopes[function]] = arguments & {
                node.value.id
                for node in self.inside(function)
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
                if node.attr in ("shape", "dtype")
            }
        return found

    def allocations(self, function: ast.AST) -> dict[str, ast.Call]:
        """Name -> the call that allocates it, of names bound once in a function, by nl.ndarray or its like."""
        return {
            name: values[0]
            for name, values in self.scopes[function].bound.items()
            if len(values) == 1 and isinstance(values[0], ast.Call) and self.called(values[0]) in ALLOCATES
        }

    def tiles(self, function: ast.AST) -> dict[str, ast.Call]:
        """The allocations of a function that lie in SBUF or PSUM."""
        on_chip = ("nl.sbuf", "nl.psum")
        return {name: call for name, call in self.allocations(function).items() if self.buffer_of(call) in on_chip}

    def buffer_of(self, call: ast.Call) -> str | None:
        """ "nl.sbuf" and the like for an allocation; None where it cannot be read off."""
        if self.called(call) not in ALLOCATES or any(keyword.arg is None for keyword in call.keywords):
            return None
        position = 3 if self.called(call) == "nki.language.full" else 2
        given = [each.value for each in call.keywords if each.arg == "buffer"] or call.args[position : position + 1]
        name = self.nki_name(given[0]) if given else "nki.language.sbuf"
        return short(name) if name else None


ALLOCATES = frozenset(f"nki.language.{name}" for name in ("ndarray", "zeros", "ones", "full"))
# what computes or loads a new tile when it is called
RETURNS_TILE = frozenset(
    f"nki.language.{name}"
    for name in (*OPS, *elementwise.FUNCTIONS, *composite.COMPOSITES, "load", "matmul", "transpose", "broadcast_to")
    if f"nki.language.{name}" not in ALLOCATES
)
MAKES_TILE = ALLOCATES | RETURNS_TILE
_HOST = ("nki.isa.get_nc_version", "nki.isa.get_nc_sub_version")


def base_name(node: ast.expr | None) -> str | None:
    """The variable a view is taken of: `tile` of tile[:n].reshape(..); None where there is no name."""
    while node is not None:
        if isinstance(node, ast.Name):
            return node.id
        if isinstance(node, ast.Subscript | ast.Attribute):
            node = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        else:
            return None
    return None


def names_in(node: ast.AST | None) -> set[str]:
    """Every variable an expression reads."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)} if node is not None else set()


def returned(node: ast.AST) -> list[str]:
    """The names that a return statement hands out."""
    if not isinstance(node, ast.Return):
        return []
    values = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
    return [each.id for each in values if isinstance(each, ast.Name)]


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _decoded(data: bytes) -> str:
    # as Python reads it: a byte order mark or a coding line may name the encoding
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    try:
        return io.TextIOWrapper(io.BytesIO(data), encoding, newline=None).read()
    except UnicodeDecodeError as error:
        raise SyntaxError(f"byte {error.start} is not {encoding}") from None
