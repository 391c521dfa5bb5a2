"""report(model): what kernelize did to each module, what its calls did since, and the share of the whole."""

from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any

from torch import nn

from kernels_neuron.errors import UsageError

from .guard import RECORD, Kept, Swap
from .plan import STATE, State


@dataclass(frozen=True)
class ModuleReport:
    """One module: what serves it or why it keeps its forward, and its calls so far.

    reason           code when kept; also set on a swapped module whose calls all fell back
    fallbacks        reason code -> calls that ran the original
    first_fallback   the first refusal, with dtypes and shapes
    rel_l2, max_abs, cosine, model_rel_l2   of the output against the original, when checked; see check_model
    """

    path: str
    class_name: str
    kind: str
    outcome: str
    reason: str = ""
    detail: str = ""
    kernel: str = ""
    kernel_id: str = ""
    kernel_version: int | None = None
    kernel_digest: str | None = None
    calls: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict)
    first_fallback: str = ""
    flops: int = 0
    kernel_flops: int = 0
    rel_l2: float | None = None
    max_abs: float | None = None
    cosine: float | None = None
    model_rel_l2: float | None = None

    @property
    def fallback_calls(self) -> int:
        """Calls that ran the original forward."""
        return sum(self.fallbacks.values())


@dataclass(frozen=True)
class KernelReport:
    """A whole kernelized model. str() is a table, to_dict() is JSON."""

    model: str
    device: str
    mode: str | None
    strict: bool
    modules: tuple[ModuleReport, ...]
    versions: dict[str, str]
    unused_kernels: tuple[str, ...] = ()
    process_wide: tuple[str, ...] = ()

    @property
    def swapped(self) -> tuple[ModuleReport, ...]:
        """The modules a kernel serves."""
        return tuple(m for m in self.modules if m.outcome == "swapped")

    @property
    def kept(self) -> tuple[ModuleReport, ...]:
        """The modules that keep their own forward, each with its reason."""
        return tuple(m for m in self.modules if m.outcome == "kept")

    @property
    def module_share(self) -> float:
        """Swapped modules over all that compute something."""
        return len(self.swapped) / len(self.modules) if self.modules else 0.0

    @property
    def flops(self) -> int:
        """Operations of all calls so far, of linear layers, convolutions and attention."""
        return sum(m.flops for m in self.modules)

    @property
    def flop_share(self) -> float | None:
        """Operations in calls that a kernel executed, over all; None before the first call."""
        return sum(m.kernel_flops for m in self.modules) / self.flops if self.flops else None

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Paths of kept modules whose operations cannot be told from outside, so that no share includes them."""
        return tuple(m.path for m in self.kept if m.kind == "attention" and not m.flops)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for json.dumps."""
        return {
            "model": self.model,
            "device": self.device,
            "mode": self.mode,
            "strict": self.strict,
            "modules": [asdict(m) for m in self.modules],
            "modules_total": len(self.modules),
            "modules_swapped": len(self.swapped),
            "module_share": self.module_share,
            "flops": self.flops,
            "flop_share": self.flop_share,
            "uncounted": list(self.uncounted),
            "unused_kernels": list(self.unused_kernels),
            "process_wide": list(self.process_wide),
            "versions": self.versions,
        }

    def __str__(self) -> str:
        checked = any(m.rel_l2 is not None for m in self.modules)
        head = ["module", "class", "kind", "outcome", "kernel or reason", "calls", "fell back"]
        rows = [head + (["rel l2", "cosine"] if checked else [])]
        for m in self.modules:
            why = m.kernel if m.outcome == "swapped" else m.reason
            row = [m.path or "(model)", m.class_name, m.kind, m.outcome, why, str(m.calls), str(m.fallback_calls)]
            rows.append(row + ([_number(m.rel_l2), _number(m.cosine)] if checked else []))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        notes = [f"{m.path}: {m.first_fallback}" for m in self.modules if m.first_fallback]
        if self.unused_kernels:
            notes.append(f"given, but no class here is served by it: {', '.join(self.unused_kernels)}")
        return "\n".join([*lines, *notes, self._summary()])

    def _summary(self) -> str:
        share = self.flop_share
        flops = "no calls yet" if share is None else f"{share:.1%} of {self.flops / 1e9:.4g} GFLOP ran in kernels"
        return f"{self.model}: {len(self.swapped)} of {len(self.modules)} modules swapped, {flops}"


def report(model: nn.Module) -> KernelReport:
    """What happened to each module of a kernelized model. Refuses a model that is not kernelized."""
    states = [(path, m.__dict__[STATE]) for path, m in model.named_modules() if STATE in m.__dict__]
    if not states:
        raise UsageError(f"{type(model).__name__} is not kernelized", hint="call kernelize(model) first")
    state: State = states[0][1]
    inside = {_join(root, path): _join(root, where) for root, s in states for path, where in s.inside.items()}
    rows = []
    for path, module in model.named_modules():
        record = module.__dict__.get(RECORD)
        if isinstance(record, Swap):
            rows.append(_swapped(path, module, record))
        elif isinstance(record, Kept):
            rows.append(_kept(path, record))
        elif path in inside:
            product = model.get_submodule(inside[path]).__dict__.get(RECORD)
            if isinstance(product, Swap):
                rows.append(_inside(path, module, inside[path], product))
    return KernelReport(
        type(model).__name__,
        state.device,
        state.mode,
        state.strict,
        tuple(rows),
        _versions(),
        state.unused,
        _process_wide(rows),
    )


def _join(root: str, path: str) -> str:
    return f"{root}.{path}" if root and path else root or path


def _swapped(path: str, module: nn.Module, swap: Swap) -> ModuleReport:
    # a product with its activation is reached through the MLP or, by somebody's hook, alone: one row for both
    both = [swap] if swap.partner is None else [swap.partner, swap]
    fallbacks: dict[str, int] = {}
    for part in both:
        for reason, count in part.fallbacks.items():
            fallbacks[reason] = fallbacks.get(reason, 0) + count
    calls = sum(part.calls for part in both)
    # in training the forward that runs is the original's, and the row says so
    refusal = swap.refusal(module)
    reason = refusal.reason if refusal else ""
    if not reason and calls and sum(fallbacks.values()) == calls:
        reason = next(iter(fallbacks))
    errors = both[0].errors or swap.errors
    return ModuleReport(
        path,
        swap.class_name,
        swap.kind,
        "kept" if refusal else "swapped",
        reason,
        refusal.detail if refusal else "",
        swap.service.kernel.name,
        swap.service.kernel.id,
        swap.service.kernel.version,
        swap.service.kernel.digest,
        calls,
        fallbacks,
        next((part.first_fallback for part in both if part.first_fallback), ""),
        sum(part.flops for part in both),
        sum(part.kernel_flops for part in both),
        **errors,
    )


def _kept(path: str, kept: Kept) -> ModuleReport:
    reason, detail = kept.refusal.reason, kept.refusal.detail
    return ModuleReport(path, kept.class_name, kept.kind, "kept", reason, detail, calls=kept.calls, flops=kept.flops)


def _inside(path: str, module: nn.Module, where: str, product: Swap) -> ModuleReport:
    """The row of an activation that runs inside a product: its calls are the product's."""
    fused = product.partner or product
    refusal = fused.refusal(module)
    return ModuleReport(
        path,
        type(module).__name__,
        "activation",
        "kept" if refusal else "swapped",
        refusal.reason if refusal else "",
        f"runs inside {where}",
        fused.service.kernel.name,
        fused.service.kernel.id,
        fused.service.kernel.version,
        fused.service.kernel.digest,
        fused.calls,
        dict(fused.fallbacks),
    )


def _process_wide(rows: list[ModuleReport]) -> tuple[str, ...]:
    if not any(row.kind == "attention" and row.kernel for row in rows):
        return ()
    return ("names beginning with 'kernels-neuron.' in transformers' AttentionInterface and AttentionMaskInterface",)


def _versions() -> dict[str, str]:
    found = {}
    for name in ("kernels-neuron", "torch", "transformers", "kernels", "nki"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}" if abs(value) < 0.5 else f"{value:.6f}"
