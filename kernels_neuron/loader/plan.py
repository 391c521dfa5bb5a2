"""What kernelize does to each module of a model: decided from the tables, kernels loaded, then put in place."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .attention import (
    attach_attention,
    attention_flops,
    former_attention,
    kernel_attention,
    refuse_attention,
    refuse_call,
)
from .guard import RECORD, Fused, Kept, Record, Service, Swap, attach, foreign_forward
from .kernel import Kernel, Kernels, layer_of
from .table import (
    ATTENTION,
    LAYERS,
    MLPS,
    SILENT,
    LayerRow,
    MlpRow,
    Refusal,
    convolution_flops,
    epilogue_of,
    is_attention,
    linear_flops,
    listed_parent,
    qualified_name,
)

STATE = "_kernels_neuron_model"


class State(Record):
    """On the root of a kernelized model: what kernelize was asked, and the activations that run inside a product."""

    def __init__(self, device: str, mode: str | None, strict: bool, unused: tuple[str, ...]) -> None:
        self.device = device
        self.mode = mode
        self.strict = strict
        self.unused = unused
        # path of the activation -> path of the product it runs in
        self.inside: dict[str, str] = {}


@dataclass(frozen=True)
class _Site:
    """A module the tables speak of, with its place in the model."""

    path: str
    module: nn.Module


class Plan:
    """What will happen to each module; made without touching the model."""

    def __init__(self, kernels: Kernels, state: State) -> None:
        self.kernels = kernels
        self.state = state
        self.swaps: list[tuple[nn.Module, Swap]] = []
        self.fused: list[tuple[nn.Module, Fused]] = []
        self.kept: list[tuple[nn.Module, Kept]] = []
        self.taken: set[int] = set()

    def decide(self, model: nn.Module) -> None:
        """Find a row and a kernel, or a reason, for every module that computes something."""
        sites = [_Site(path, module) for path, module in model.named_modules()]
        places: dict[int, int] = {}
        for _, module in model.named_modules(remove_duplicate=False):
            places[id(module)] = places.get(id(module), 0) + 1
        for site in sites:
            if row := MLPS.get(qualified_name(type(site.module))):
                self._decide_mlp(site, row, places)
        for site in sites:
            if id(site.module) not in self.taken:
                self._decide_module(site)
        self.kernels.require_any()

    def apply(self, model: nn.Module) -> None:
        """Put the records in place."""
        for module, swap in self.swaps:
            if swap.kind == "attention":
                attach_attention(model, module, swap)
            else:
                attach(module, swap)
        for module, fused in self.fused:
            attach(module, fused)
        inside_attention = {id(m) for _, m in _in_multihead_attention(model)}
        for module, kept in self.kept:
            module.__dict__[RECORD] = kept
            if id(module) not in inside_attention and _can_count(module):
                kept.handle = module.register_forward_hook(_count_kept, with_kwargs=True)
        model.__dict__[STATE] = self.state

    def _decide_module(self, site: _Site) -> None:
        name = qualified_name(type(site.module))
        if row := LAYERS.get(name):
            self._decide_layer(site, row)
        elif name in ATTENTION:
            self._decide_attention(site)
        elif is_attention(site.module):
            self._keep(site, "attention", Refusal("class-not-listed", name))
        elif parent := listed_parent(site.module):
            self._keep(site, parent.kind, Refusal("subclass-differs", name))
        elif name not in SILENT and _is_leaf(site.module):
            self._keep(site, "other", Refusal("class-not-listed", name))

    def _decide_layer(self, site: _Site, row: LayerRow) -> None:
        found = self._layer(site, row.kernel, row.layer, row.parameters)
        refusal = found if isinstance(found, Refusal) else row.refuse(site.module)
        if refusal is not None:
            self._keep(site, row.kind, refusal)
            return
        assert not isinstance(found, Refusal)
        kernel, layer = found
        flops = functools.partial(_layer_flops, row.flops)
        original = type(site.module).forward
        self._swap(
            site, row.kind, Service(kernel, layer.forward, original, flops, _backward_of(layer), row.refuse_call)
        )

    def _decide_attention(self, site: _Site) -> None:
        refusal = self._hooks(site) or refuse_attention(site.module)
        kernel = self._kernel("vit_attn")
        if refusal is None and isinstance(kernel, Refusal):
            refusal = kernel
        forward = getattr(kernel.module, "attention_forward", None) if isinstance(kernel, Kernel) else None
        if refusal is None and forward is None:
            refusal = Refusal("no-kernel", "the artifact has no attention_forward")
        has_backward = getattr(forward, "has_backward", False)
        refusal = refusal or self._backward(has_backward)
        if refusal is not None:
            self._keep(site, "attention", refusal)
            return
        assert isinstance(kernel, Kernel)
        call = functools.partial(kernel_attention, forward)
        self._swap(
            site, "attention", Service(kernel, call, former_attention, attention_flops, has_backward, refuse_call)
        )

    def _decide_mlp(self, site: _Site, row: MlpRow, places: dict[int, int]) -> None:
        first, activation = getattr(site.module, row.first), getattr(site.module, row.activation)
        linear = qualified_name(type(first)) == "torch.nn.modules.linear.Linear"
        layer_name = epilogue_of(activation)
        if not linear or layer_name is None or places[id(activation)] > 1 or foreign_forward(site.module):
            return
        prefix = f"{site.path}." if site.path else ""
        first_site = _Site(prefix + row.first, first)
        found = self._layer(first_site, "gemm", layer_name, ("hidden_states",))
        plain = self._layer(first_site, "gemm", "Linear", ("input",))
        if isinstance(found, Refusal) or isinstance(plain, Refusal) or LAYERS[_LINEAR].refuse(first) is not None:
            return
        kernel, layer = found
        has_backward = _backward_of(layer) and _backward_of(plain[1])
        # the first layer keeps a Swap of its own for callers who do not come through the MLP; its counts are the row
        flops = functools.partial(_layer_flops, linear_flops)
        alone = Service(kernel, plain[1].forward, type(first).forward, flops, has_backward)
        fused = Service(
            kernel,
            functools.partial(_fused_kernel, layer.forward, row.first),
            functools.partial(_fused_original, row.first, row.activation),
            functools.partial(_fused_flops, row.first),
            has_backward,
        )
        swap = self._swap(first_site, "linear-gelu", alone)
        whole = self._make(first_site, "linear-gelu", fused)
        swap.partner = whole
        self.fused.append((site.module, Fused(whole, row.first, row.activation, row.last)))
        self.state.inside[prefix + row.activation] = first_site.path
        self.taken |= {id(first), id(activation)}

    def _kernel(self, name: str) -> Kernel | Refusal:
        if name in self.kernels.excluded:
            return Refusal("user-excluded", f"kernels[{name!r}] is None")
        return self.kernels.get(name) or Refusal("no-kernel", f"{name} was not given")

    def _layer(self, site: _Site, name: str, layer_name: str, parameters: tuple[str, ...]) -> Any:
        """(kernel, layer class), or why this site gets none."""
        if refusal := self._hooks(site):
            return refusal
        kernel = self._kernel(name)
        if isinstance(kernel, Refusal):
            return kernel
        layer = layer_of(kernel, layer_name, parameters)
        if layer is None:
            return Refusal("no-kernel", f"{kernel.id} has no layer {layer_name}")
        return self._backward(_backward_of(layer)) or (kernel, layer)

    def _hooks(self, site: _Site) -> Refusal | None:
        return Refusal("hooked", "its forward was replaced already") if foreign_forward(site.module) else None

    def _backward(self, has_backward: bool) -> Refusal | None:
        if self.state.mode == "training" and not has_backward:
            return Refusal("training-needs-backward", "the kernel has no backward")
        return None

    def _make(self, site: _Site, kind: str, service: Service) -> Swap:
        class_name = type(site.module).__name__
        return Swap(site.path, kind, class_name, service, mode=self.state.mode, strict=self.state.strict)

    def _swap(self, site: _Site, kind: str, service: Service) -> Swap:
        swap = self._make(site, kind, service)
        self.swaps.append((site.module, swap))
        return swap

    def _keep(self, site: _Site, kind: str, refusal: Refusal) -> None:
        self.kept.append((site.module, Kept(site.path, kind, type(site.module).__name__, refusal)))


_LINEAR = "torch.nn.modules.linear.Linear"


def _is_leaf(module: nn.Module) -> bool:
    has_children = next(module.children(), None) is not None
    return not has_children and not isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential)


def _backward_of(layer: Any) -> bool:
    return getattr(layer, "has_backward", True)  # upstream's default for a layer that does not say


def _layer_flops(count: Any, module: nn.Module, args: tuple, out: torch.Tensor) -> int:
    return count(module, args[0], out) if args and isinstance(out, torch.Tensor) else 0


def _fused_kernel(forward: Any, first: str, module: nn.Module, hidden_states: torch.Tensor) -> torch.Tensor:
    return forward(getattr(module, first), hidden_states)


def _fused_original(first: str, activation: str, module: nn.Module, hidden_states: torch.Tensor) -> torch.Tensor:
    layer = getattr(module, first)
    return getattr(module, activation)(type(layer).forward(layer, hidden_states))


def _fused_flops(first: str, module: nn.Module, args: tuple, out: torch.Tensor) -> int:
    return linear_flops(getattr(module, first), args[0], out)


def _in_multihead_attention(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """nn.MultiheadAttention reads the weights of its parts and looks for hooks on them: leave them alone."""
    for path, module in model.named_modules():
        if isinstance(module, nn.MultiheadAttention):
            yield from ((f"{path}.{name}", part) for name, part in module.named_modules())


def _can_count(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d) or _query_width(module) > 0


def _query_width(module: nn.Module) -> int:
    for name in ("q_proj", "query", "q_lin", "q", "to_q"):
        width = getattr(getattr(module, name, None), "out_features", None)
        if isinstance(width, int):
            return width
    return 0


def _count_kept(module: nn.Module, args: tuple, kwargs: dict[str, Any], out: Any) -> None:
    """Forward hook on a module that keeps its forward: its calls and operations belong to the model's total."""
    kept = module.__dict__.get(RECORD)
    if not isinstance(kept, Kept):
        return
    kept.calls += 1
    x = args[0] if args else next((v for v in kwargs.values() if isinstance(v, torch.Tensor)), None)
    if not isinstance(x, torch.Tensor):
        return
    if width := _query_width(module):
        # the two products of self-attention over the tokens of x; other lengths are not visible from here
        kept.flops += 4 * (x.numel() // x.shape[-1]) * x.shape[-2] * width
    elif isinstance(out, torch.Tensor):
        count = linear_flops if isinstance(module, nn.Linear) else convolution_flops
        kept.flops += count(module, x, out)
