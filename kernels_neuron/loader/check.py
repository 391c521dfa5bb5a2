"""check_model: the kernelized model against the original in float32, layer by layer, on the caller's own inputs."""

import contextlib
import copy
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from kernels_neuron.errors import UsageError

from .guard import RECORD, Fused, Swap


@dataclass(frozen=True)
class ModuleError:
    """How far one swapped module is from the original; the worst of its calls.

    rel_l2         against the original in float32 on the same input: what the kernel adds
    model_rel_l2   against the same module in the original float32 model: what has added up to here
    cosine         the smallest over tokens, on the same input
    """

    path: str
    kind: str
    calls: int
    rel_l2: float
    max_abs: float
    cosine: float
    model_rel_l2: float


@dataclass(frozen=True)
class CheckReport:
    """All modules in the order they ran, and the model's first floating-point output."""

    modules: tuple[ModuleError, ...]
    output_rel_l2: float
    output_max_abs: float
    argmax_equal: bool

    @property
    def worst(self) -> ModuleError | None:
        """The module that adds the largest relative error."""
        return max(self.modules, key=lambda m: m.rel_l2, default=None)

    def first_beyond(self, rel_l2: float) -> ModuleError | None:
        """The first module, in running order, whose own error is above a limit."""
        return next((m for m in self.modules if m.rel_l2 > rel_l2), None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for json.dumps."""
        return asdict(self) | {"worst": self.worst.path if self.worst else None}

    def __str__(self) -> str:
        width = max([len(m.path) for m in self.modules] + [6])
        lines = [f"{'module':{width}}  rel l2    so far    cosine"]
        lines += [f"{m.path:{width}}  {m.rel_l2:.2e}  {m.model_rel_l2:.2e}  {m.cosine:.6f}" for m in self.modules]
        same = "equal" if self.argmax_equal else "NOT equal"
        lines.append(f"output: rel l2 {self.output_rel_l2:.2e}, max abs {self.output_max_abs:.2e}, argmax {same}")
        return "\n".join(lines)


def check_model(model: nn.Module, inputs: Any, *, original: nn.Module | None = None) -> CheckReport:
    """Run a kernelized model and a float32 copy of its original on `inputs`, and compare every swapped module.

    inputs     a tensor, a tuple of positional or a dict of keyword arguments of model.forward
    original   the model before its weights were rounded to a narrower dtype; None takes the weights as they are
    Leaves the call counts of report() as they were; the errors found appear there. Runs without gradients.
    """
    swaps = _swaps(model)
    if not swaps:
        raise UsageError(
            f"{type(model).__name__} has no swapped module to check", hint="call kernelize(model) first, or see report"
        )
    if any(swap.refusal(module) for module, swap in swaps):
        raise UsageError("check needs a model in eval mode: kernels do not run in training", hint="call model.eval()")
    args, kwargs = _arguments(inputs)
    with torch.no_grad(), _undisturbed(swaps):
        expected, expected_out = _run_original(model, original, args, kwargs)
        found, out = _run_kernels(model, swaps, args, kwargs, expected)
    modules = tuple(_worst(path, kind, errors) for (path, kind), errors in found.items())
    for error in modules:
        for _, swap in swaps:
            if swap.path == error.path:
                swap.errors = {name: getattr(error, name) for name in ("rel_l2", "max_abs", "cosine", "model_rel_l2")}
    equal = bool(torch.equal(out.argmax(-1), expected_out.argmax(-1))) if out.dim() else True
    whole = _difference(out, expected_out)
    return CheckReport(modules, whole["rel_l2"], whole["max_abs"], equal)


def _swaps(model: nn.Module) -> list[tuple[nn.Module, Swap]]:
    """Every Swap of a model with the module it is called for."""
    found = []
    for module in model.modules():
        record = module.__dict__.get(RECORD)
        if isinstance(record, Fused):
            found.append((module, record.swap))
        elif isinstance(record, Swap):
            found.append((module, record))
    return found


def _arguments(inputs: Any) -> tuple[tuple, dict[str, Any]]:
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        return tuple(inputs), {}
    raise UsageError(f"inputs are a tensor, a tuple or a dict, got {type(inputs).__name__}")


@contextlib.contextmanager
def _undisturbed(swaps: list[tuple[nn.Module, Swap]]) -> Iterator[None]:
    counts = ("calls", "first_fallback", "flops", "kernel_flops")
    before = [({name: getattr(swap, name) for name in counts}, dict(swap.fallbacks)) for _, swap in swaps]
    try:
        yield
    finally:
        for (_, swap), (values, fallbacks) in zip(swaps, before, strict=True):
            swap.__dict__.update(values, fallbacks=fallbacks, observer=None)


def _run_original(
    model: nn.Module, weights: nn.Module | None, args: tuple, kwargs: dict[str, Any]
) -> tuple[dict[str, list[torch.Tensor]], torch.Tensor]:
    """The original model in float32: the output of each swapped module, per call, and the model's own."""
    original = copy.deepcopy(model).float()
    if weights is not None:
        original.load_state_dict(weights.state_dict())
    outputs: dict[str, list[torch.Tensor]] = {}

    def store(swap: Swap, module: nn.Module, args: tuple, kwargs: dict, out: Any) -> None:
        outputs.setdefault(swap.path, []).append(_first_tensor(out))

    for _, swap in _swaps(original):
        swap.bypass = True
        swap.observer = store
    out = original(*_widened(args), **_widened(kwargs))
    return outputs, _first_tensor(out)


def _run_kernels(
    model: nn.Module,
    swaps: list[tuple[nn.Module, Swap]],
    args: tuple,
    kwargs: dict[str, Any],
    expected: dict[str, list[torch.Tensor]],
) -> tuple[dict[tuple[str, str], list[dict[str, float]]], torch.Tensor]:
    found: dict[tuple[str, str], list[dict[str, float]]] = {}

    def compare(swap: Swap, module: nn.Module, args: tuple, kwargs: dict, out: Any) -> None:
        same_input = swap.service.original(_twin(module), *_widened(args), **_widened(kwargs))
        errors = found.setdefault((swap.path, swap.kind), [])
        error = _difference(_first_tensor(out), _first_tensor(same_input))
        theirs = expected.get(swap.path, [])
        if len(errors) < len(theirs):
            error["model_rel_l2"] = _difference(_first_tensor(out), theirs[len(errors)])["rel_l2"]
        errors.append(error)

    for _, swap in swaps:
        swap.observer = compare
    out = model(*args, **kwargs)
    return found, _first_tensor(out)


def _twin(module: nn.Module) -> nn.Module:
    """A float32 copy that runs the original forward all the way down."""
    twin = copy.deepcopy(module).float()
    for _, swap in _swaps(twin):
        swap.bypass = True
        swap.observer = None
    return twin


def _worst(path: str, kind: str, errors: list[dict[str, float]]) -> ModuleError:
    def largest(name: str) -> float:
        return max(error.get(name, 0.0) for error in errors)

    cosine = min(error["cosine"] for error in errors)
    return ModuleError(path, kind, len(errors), largest("rel_l2"), largest("max_abs"), cosine, largest("model_rel_l2"))


def _difference(out: torch.Tensor, reference: torch.Tensor) -> dict[str, float]:
    out, reference = out.detach().double(), reference.detach().double()
    norm = reference.norm()
    error = (out - reference).norm()
    cosine = nn.functional.cosine_similarity(out, reference, dim=-1, eps=1e-30) if out.dim() else torch.ones(1)
    # two zero vectors are equal, which a cosine does not know
    cosine = torch.where((out == reference).all(-1), torch.ones_like(cosine), cosine) if out.dim() else cosine
    return {
        "rel_l2": float(error / norm) if norm > 0 else float(error),
        "max_abs": float((out - reference).abs().max()) if out.numel() else 0.0,
        "cosine": float(cosine.min()) if cosine.numel() else 1.0,
    }


def _widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, tuple | list):
        return type(value)(_widened(v) for v in value)
    if isinstance(value, Mapping):
        return {name: _widened(v) for name, v in value.items()}
    return value


def _first_tensor(out: Any) -> torch.Tensor:
    """The first floating-point tensor of an output."""
    if isinstance(out, torch.Tensor):
        return out
    values = list(out.values()) if isinstance(out, Mapping) else list(out) if isinstance(out, tuple | list) else []
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value
    raise UsageError(f"the model returns {type(out).__name__}, in which there is no floating-point tensor to compare")
