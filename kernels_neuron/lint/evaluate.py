"""What can be known of a kernel without running it: numbers, shapes and tiles that its text fixes.

Statements are followed in order, with everything the text does not fix UNKNOWN: arguments, shapes of arguments, program
ids. A call of nki whose arguments are all known is made, on a core that computes nothing, so that the simulator's own
rules judge it. Of a loop the first turn is followed as it is, and once more the last one.
"""

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kernels_neuron.arch import Arch
from kernels_neuron.errors import KernelsNeuronError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import Scope, running
from kernels_neuron.sim.core import NeuronCore
from kernels_neuron.sim.isa import TABLE
from kernels_neuron.sim.memory import MemoryRegion
from kernels_neuron.sim.shim import isa, language
from kernels_neuron.sim.tensor import NkiTensor

from .inline import bound, helper
from .source import ALLOCATES, Source
from .target import Target, spell


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Any = _Unknown()


@dataclass(frozen=True)
class Somewhere:
    """A tensor of unknown shape in a known memory."""

    buffer: MemoryRegion


@dataclass(frozen=True)
class Refusal:
    """A call that the simulator refuses whatever is unknown."""

    node: ast.AST
    rule: str
    message: str
    hint: str | None


@dataclass
class Facts:
    """What one chip makes of a file.

    refusals  calls that are refused
    tiles     the tensor that an allocating call makes
    turns     how often a loop runs
    """

    refusals: list[Refusal]
    tiles: dict[ast.AST, NkiTensor]
    turns: dict[ast.AST, int]


def facts(source: Source, target: Target, arch: Arch) -> Facts:
    """What the text of a file fixes, on one chip."""
    key = ("facts", target.version, arch.name)
    if key not in source.cache:
        found = source.cache[key] = Facts([], {}, {})
        for function in source.kernel_code:
            _Evaluator(source, target, arch, function, found).run()
    cached = source.cache[key]
    assert isinstance(cached, Facts)
    return cached


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.Pow: operator.pow, ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_,
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_HOST: dict[str, Callable[..., Any]] = {
    "abs": abs, "bool": bool, "float": float, "int": int, "len": len, "max": max, "min": min, "range": range,
    "slice": slice, "sum": sum, "tuple": tuple,
}  # fmt: skip
_LARGEST = 1 << 48
_MOST_INLINED = 500  # calls of helpers followed in one kernel; generated files have thousands
_SAFE = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
# what these do depends on the run, on files, or is judged by rules of the linter
_NOT_CALLED = {"device_print", "dynamic_range", "fori_loop", "no_reorder", "num_programs", "program_id", "program_ndim",
               "shared_constant", "while_loop"}  # fmt: skip
# rules of the simulator about what happened before, and those the linter has itself
_OF_A_RUN = {
    "accumulate-foreign", "accumulate-unwritten", "accumulator-undefined", "api-version", "barrier-cores",
    "call-signature", "deadlock", "lnc", "sendrecv-rank",
    "depends-on", "field-left-out", "lnc-divergence", "nested-jit", "not-simulated", "outside-kernel", "race",
    "reduce-idle", "reduce-init", "register-in-python", "register-unknown", "register-unset", "register-value",
    "retired", "sendrecv-pair", "unwritten-output", "unwritten-read",
}  # fmt: skip
_TENSORS = {"dst", "src", "data", "data0", "data1", "data2", "stationary", "moving"}
_PLACES = {"operand-buffer", "two-psum-inputs", "gpsimd-psum"}
_BUFFERS = (MemoryRegion.sbuf, MemoryRegion.psum, MemoryRegion.shared_hbm)


class _Evaluator:
    """Follows one function. `values`: what is known of its variables; `unsure`: how many branches may not be taken."""

    def __init__(
        self, source: Source, target: Target, arch: Arch, function: ast.FunctionDef | ast.AsyncFunctionDef, found: Facts
    ) -> None:
        self.source = source
        self.target = target
        self.arch = arch
        self.settings = Settings(nki=spell(max(target.version, (0, 3))), execute=False)
        self.core = NeuronCore(arch, self.settings)
        self.function = function
        self.facts = found
        arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
        self.values: dict[str, Any] = {each.arg: UNKNOWN for each in arguments}
        self.constants: dict[str, Any] = {}
        self.returned: list[Any] = []
        self.inside: tuple[ast.AST, ...] = (function,)  # the functions being followed, outermost first
        self.budget = [_MOST_INLINED]
        self.launched = set(self.values) if function in source.launched else set()
        self.unsure = 0

    def run(self) -> None:
        """Follow the function from its first statement."""
        self._block(self.function.body)

    # ---- statements

    def _block(self, body: list[ast.stmt]) -> bool:
        """Follow statements; True where they end the block for good."""
        return any(self._statement(each) for each in body)

    def _statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.Assign(targets=targets, value=value):
                result = self._eval(value)
                for target in targets:
                    self._assign(target, result)
            case ast.AnnAssign(target=target, value=value) if value is not None:
                self._assign(target, self._eval(value))
            case ast.AugAssign(target=target):
                before = self.values.get(target.id, UNKNOWN) if isinstance(target, ast.Name) else UNKNOWN
                self._assign(target, self._binary(node.op, before, self._eval(node.value)))
            case ast.Expr(value=value):
                self._eval(value)
            case ast.If():
                return self._if(node)
            case ast.For(target=target, iter=iterable, body=body):
                self._for(node, target, self._eval(iterable), body)
            case ast.With(items=items, body=body):
                for item in items:
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, UNKNOWN)
                return self._block(body)
            case ast.While(body=body) | ast.Try(body=body):
                self._forget(node)
                with self._doubt():
                    self._block(body)
                self._forget(node)
            case ast.Return(value=value):
                self.returned.append(self._eval(value) if value is not None and not self.unsure else UNKNOWN)
                return True
            case ast.Raise() | ast.Continue() | ast.Break():
                return True
            case ast.FunctionDef() | ast.ClassDef() | ast.Assert() | ast.Pass():
                pass
            case _:
                self._forget(node)
        return False

    def _if(self, node: ast.If) -> bool:
        test = self._eval(node.test)
        if test is not UNKNOWN and not isinstance(test, Somewhere | NkiTensor):
            return self._block(node.body if test else node.orelse)
        before = dict(self.values)
        ends = []
        for branch in (node.body, node.orelse):
            self.values = dict(before)
            with self._doubt():
                ends.append(self._block(branch))
        self.values = before
        self._forget(node)
        return all(ends)

    def _for(self, node: ast.For, target: ast.expr, iterable: Any, body: list[ast.stmt]) -> None:
        turns = iterable if isinstance(iterable, range | tuple) else None
        if turns is not None:
            self.facts.turns[node] = len(turns)
            if not len(turns):
                return
        self._assign(target, turns[0] if turns else UNKNOWN)
        self._block(body)
        self._forget(node)
        if turns and len(turns) > 1:
            self._assign(target, turns[-1])
            self._block(body)
        self._forget(node)

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.values[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            known = isinstance(value, tuple) and len(value) == len(target.elts)
            for position, each in enumerate(target.elts):
                self._assign(each, value[position] if known else UNKNOWN)
        elif isinstance(target, ast.Starred):
            self._assign(target.value, UNKNOWN)
        elif isinstance(target, ast.Subscript):
            self._eval(target)

    def _forget(self, node: ast.AST) -> None:
        """What a statement binds is unknown from here on."""
        self.values.update(dict.fromkeys(self.source.stores(node), UNKNOWN))

    @contextmanager
    def _doubt(self) -> Iterator[None]:
        self.unsure += 1
        try:
            yield
        finally:
            self.unsure -= 1

    # ---- expressions

    def _eval(self, node: ast.expr | None) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                values = tuple(self._eval(each) for each in elts)
                return UNKNOWN if any(each is UNKNOWN for each in values) else values
            case ast.Slice(lower=lower, upper=upper, step=step):
                ends = [None if each is None else self._eval(each) for each in (lower, upper, step)]
                return UNKNOWN if any(each is UNKNOWN for each in ends) else slice(*ends)
            case ast.Name() | ast.Attribute():
                return self._named(node)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(op, self._eval(left), self._eval(right))
            case ast.UnaryOp(op=op, operand=operand):
                return self._apply(_OPERATORS.get(type(op)), self._eval(operand))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._apply(_OPERATORS.get(type(op)), self._eval(left), self._eval(right))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                chosen = self._eval(test)
                if chosen is UNKNOWN or isinstance(chosen, Somewhere):
                    return UNKNOWN
                return self._eval(body if chosen else orelse)
            case ast.BoolOp(op=op, values=values):
                return self._logical(op, values)
            case ast.Subscript(value=value, slice=index):
                return self._subscript(node, self._eval(value), self._eval(index))
            case ast.Call():
                return self._call(node)
        return UNKNOWN

    def _named(self, node: ast.Name | ast.Attribute) -> Any:
        name = self.source.nki_name(node)
        if name:
            return self._public(name)
        if isinstance(node, ast.Attribute):
            value = self._eval(node.value)
            if isinstance(value, NkiTensor) and node.attr in ("shape", "dtype", "ndim", "size", "buffer"):
                return getattr(value, node.attr)
            return value.buffer if isinstance(value, Somewhere) and node.attr == "buffer" else UNKNOWN
        if node.id in self.values:
            return self.values[node.id]
        scopes = list(self.source.scopes_of(node))
        if any(node.id in scope.bound for scope in scopes[:-1]):
            return UNKNOWN
        return self._constant(node.id)

    def _constant(self, name: str) -> Any:
        """The value of a name that the module binds once."""
        if name not in self.constants:
            self.constants[name] = UNKNOWN  # for names that are defined by themselves
            values = self.source.scopes[self.source.tree].bound.get(name, [])
            if len(values) == 1 and values[0] is not None and isinstance(self.source.parents[values[0]], ast.Assign):
                inside, self.values = self.values, {}
                found = self._eval(values[0])
                self.values = inside
                self.constants[name] = found if not isinstance(found, NkiTensor) else UNKNOWN
        return self.constants[name]

    def _public(self, name: str) -> Any:
        """The object behind a name of nki: a dtype, an operator, an enumeration, a limit of the chip."""
        for module, shim in (("nki.language.", language), ("nki.isa.", isa)):
            if name.startswith(module):
                first, *rest = name.removeprefix(module).split(".")
                if first == "tile_size":
                    return self.arch.tile_size.get(rest[0], UNKNOWN) if rest else UNKNOWN
                found = getattr(shim, first, UNKNOWN) if first in shim.__all__ else UNKNOWN
                for part in rest:
                    found = getattr(found, part, UNKNOWN) if isinstance(found, type) else UNKNOWN
                return found
        return UNKNOWN

    def _binary(self, op: ast.operator, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if not numbers or (isinstance(op, ast.Pow | ast.LShift) and abs(right) > 64):
            return UNKNOWN
        return self._apply(_OPERATORS.get(type(op)), left, right)

    def _apply(self, function: Callable[..., Any] | None, *values: Any) -> Any:
        if function is None or any(isinstance(each, _Unknown | Somewhere | NkiTensor) for each in values):
            return UNKNOWN
        try:
            result = function(*values)
        except _SAFE:
            return UNKNOWN
        return UNKNOWN if isinstance(result, int | float) and not abs(result) < _LARGEST else result

    def _logical(self, op: ast.boolop, values: list[ast.expr]) -> Any:
        decides = isinstance(op, ast.Or)
        result: Any = UNKNOWN
        unknown = False
        for each in values:
            result = self._eval(each)
            if result is UNKNOWN or isinstance(result, Somewhere | NkiTensor):
                unknown = True
            elif bool(result) is decides:
                return result if not unknown else UNKNOWN
        return UNKNOWN if unknown else result

    def _subscript(self, node: ast.Subscript, value: Any, index: Any) -> Any:
        if isinstance(value, Somewhere):
            return value
        if isinstance(value, NkiTensor):
            if index is UNKNOWN:
                return Somewhere(value.buffer)
            return self._try(node, value.__getitem__, (index,), {}, Somewhere(value.buffer))
        if isinstance(value, tuple) and isinstance(index, int | slice):
            return self._apply(operator.getitem, value, index)
        return UNKNOWN

    # ---- calls

    def _call(self, node: ast.Call) -> Any:
        arguments = [self._eval(each) for each in node.args if not isinstance(each, ast.Starred)]
        keywords = {each.arg: self._eval(each.value) for each in node.keywords if each.arg}
        everything = [*arguments, *keywords.values()]
        whole = len(arguments) == len(node.args) and len(keywords) == len(node.keywords)
        known = whole and not any(isinstance(each, _Unknown | Somewhere) for each in everything)
        name = self.source.nki_name(node.func)
        if name is None:
            return self._plain_call(node, arguments, keywords, known)
        module, _, function = name.rpartition(".")
        if name == "nki.isa.get_nc_version":
            return isa.nc_version(self.arch.generation)
        if module == "nki.isa" and function in TABLE:
            if known:
                self._try(node, TABLE[function], tuple(arguments), keywords, UNKNOWN)
            elif whole:
                self._probe(node, function, arguments, keywords)
            return UNKNOWN
        if module == "nki.language" and function in language.__all__ and function not in _NOT_CALLED:
            fallback = self._allocated(node) if name in ALLOCATES else UNKNOWN
            if not known:
                return fallback
            result = self._try(node, getattr(language, function), tuple(arguments), keywords, fallback)
            if isinstance(result, NkiTensor):
                self.facts.tiles[node] = result
            return result
        return UNKNOWN

    def _allocated(self, node: ast.Call) -> Any:
        name = (self.source.buffer_of(node) or "").removeprefix("nl.")
        buffer = getattr(language, name, None) if name else None
        return Somewhere(buffer) if isinstance(buffer, MemoryRegion) else UNKNOWN

    def _plain_call(self, node: ast.Call, arguments: list[Any], keywords: dict[str, Any], known: bool) -> Any:
        if isinstance(node.func, ast.Attribute):
            owner = self._eval(node.func.value)
            if isinstance(owner, NkiTensor) and known and callable(getattr(NkiTensor, node.func.attr, None)):
                method = getattr(owner, node.func.attr)
                return self._try(node, method, tuple(arguments), keywords, Somewhere(owner.buffer))
            if isinstance(owner, NkiTensor | Somewhere):
                return Somewhere(owner.buffer)
            if self.source.resolve(node.func) in ("math.ceil", "math.floor", "math.prod", "math.sqrt") and known:
                return self._apply(getattr(math, node.func.attr), *arguments)
            # a method may change what it is called on
            if isinstance(node.func.value, ast.Name) and node.func.value.id in self.values:
                self.values[node.func.value.id] = UNKNOWN
            return UNKNOWN
        builtin = node.func.id if isinstance(node.func, ast.Name) else ""
        if builtin in _HOST and known and not any(builtin in scope.bound for scope in self.source.scopes_of(node)):
            return UNKNOWN if keywords else self._apply(_HOST[builtin], *arguments)
        function = helper(self.source, node)
        return self._inlined(function, bound(function, arguments, keywords)) if function else UNKNOWN

    def _inlined(self, function: ast.FunctionDef, values: dict[str, Any] | None) -> Any:
        """What a function of the file returns for these arguments. Calls in it are judged; its tiles are its own."""
        if values is None or function in self.inside or function.decorator_list or not self.budget[0]:
            return UNKNOWN
        self.budget[0] -= 1
        inner = _Evaluator(self.source, self.target, self.arch, function, Facts(self.facts.refusals, {}, {}))
        inner.core, inner.values = self.core, inner.values | values
        inner.unsure, inner.inside, inner.budget = self.unsure, (*self.inside, function), self.budget
        inner.run()
        return inner.returned[0] if len(inner.returned) == 1 else UNKNOWN

    def _try(
        self, node: ast.AST, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], fallback: Any
    ) -> Any:
        """The result of a call on the core; `fallback` where it is refused, which is noted."""
        try:
            with running(self.core, Scope(self.arch, self.settings)):
                return function(*args, **kwargs)
        except KernelsNeuronError as error:
            self._note(node, getattr(error, "rule", ""), _message(error), error.hint)
        except _SAFE:
            pass
        return fallback

    def _note(self, node: ast.AST, rule: str, message: str, hint: str | None) -> None:
        if rule and rule not in _OF_A_RUN and not (self.unsure and rule == "chip-generation"):
            self.facts.refusals.append(Refusal(node, rule, message, hint))

    def _probe(self, node: ast.Call, function: str, arguments: list[Any], keywords: dict[str, Any]) -> None:
        """Refuse a call for the memory of an operand, where that is known and every guess at the rest is refused."""
        signature = TABLE[function].signature
        try:
            bound = signature.bind(*arguments, **keywords).arguments
        except TypeError:
            return
        expressions = dict(zip(signature.parameters, node.args, strict=False))
        expressions |= {each.arg: each.value for each in node.keywords if each.arg}
        fixed: dict[str, Any] = {}
        open_operands: list[str] = []
        for name, value in bound.items():
            if name in _TENSORS and value is UNKNOWN and self._is_argument(expressions[name]):
                value = Somewhere(MemoryRegion.shared_hbm)
            if isinstance(value, Somewhere):
                fixed[name] = self._stand_in(value.buffer)
            elif value is not UNKNOWN:
                fixed[name] = value
            elif name in _TENSORS:
                open_operands.append(name)
            elif signature.parameters[name].default is signature.parameters[name].empty:
                return
        if not any(isinstance(value, NkiTensor) for value in fixed.values()):
            return
        refusals = [
            self._refusal(function, {**fixed, **dict(zip(open_operands, map(self._stand_in, guess), strict=True))})
            for guess in itertools.product(_BUFFERS, repeat=len(open_operands))
        ]
        if all(each is not None and getattr(each, "rule", "") in _PLACES for each in refusals):
            first = next(each for each in refusals if each is not None)
            message = _message(first).split(", got ")[0]
            shown = ", ".join(
                f"{name} is in {value.buffer.value.replace('shared_', '').upper()}"
                for name, value in fixed.items()
                if isinstance(value, NkiTensor) and name in message.split()
            )
            self._note(node, first.rule, f"{message}; {shown}" if shown else message, first.hint)

    def _is_argument(self, node: ast.expr) -> bool:
        """Whether an expression is an argument of a launched kernel, or a slice of one: a tensor there is in HBM."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.launched:
            return False
        return len(self.source.scopes[self.function].bound[node.id]) == 1

    def _stand_in(self, buffer: MemoryRegion) -> NkiTensor:
        with running(self.core, Scope(self.arch, self.settings)):
            return self.core.allocate((1, 1), "float32", buffer)

    def _refusal(self, function: str, operands: dict[str, Any]) -> Any:
        try:
            with running(self.core, Scope(self.arch, self.settings)):
                TABLE[function](**operands)
        except KernelsNeuronError as error:
            return error
        except _SAFE:
            return None
        return None


def _message(error: KernelsNeuronError) -> str:
    """The error without the place in our own files where it was raised."""
    where = getattr(error, "where", None)
    return str(error).removeprefix(f"{where}: ") if where else str(error)
