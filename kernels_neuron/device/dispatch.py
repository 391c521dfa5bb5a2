"""Every operator on neuron tensors: the CPU's own kernel on the same memory, after the checks a real device makes.

One function serves all operators. It reads an operator's schema once, then per call: neuron tensors go in as CPU
tensors over the same memory, what the operator wrote to is given back as it came, and what it made becomes a neuron
tensor.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from .memory import on_host, on_neuron

Tensor = torch.Tensor
Op = torch._ops.OpOverload

NAME = "neuron"
_HOST = torch.device("cpu")
# index tensors may be on the CPU, on every device
_TAKES_CPU_INDICES = ("aten::index", "aten::_index_put_impl_", "aten::index_put", "aten::_unsafe_index")


class Plan:
    """What one operator's schema says: which arguments it writes, which are `out=`, what it gives back."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.name = op._schema.name
        arguments = op._schema.arguments
        self.names = [argument.name for argument in arguments]
        written = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
        self.outs = frozenset(a.name for a in arguments if a.kwarg_only and a.name in written)
        self.written = frozenset(written)
        self.has_device = "device" in self.names
        self.may_be_on_cpu = ("indices",) if self.name.startswith(_TAKES_CPU_INDICES) else ()
        # for each return: the argument it is, None for something new
        aliases = {s: a.name for a in arguments if a.alias_info is not None for s in a.alias_info.before_set}
        self.returns: list[str | None] = []
        for value in op._schema.returns:
            alias = value.alias_info
            self.returns.append(None if alias is None else next((aliases.get(s) for s in alias.before_set), ""))
        self.is_view = any(
            value.alias_info is not None and not value.alias_info.is_write for value in op._schema.returns
        )
        self.is_new = all(name is None for name in self.returns)

    def argument(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The value of one argument of a call."""
        position = self.names.index(name)
        return args[position] if position < len(args) else kwargs.get(name)


_plans: dict[Op, Plan] = {}


def fallback(op: Op, *args: Any, **kwargs: Any) -> Any:
    """The boxed fallback: an operator that no kernel of ours was registered for."""
    plan = _plans.get(op)
    if plan is None:
        plan = _plans[op] = Plan(op)
    if plan.is_view:
        raise NotImplementedError(f"{plan.name} returns a view that the emulated neuron device cannot make")
    return run(plan, args, kwargs)


def kernel(op: Op) -> Callable[..., Any]:
    """A kernel for one operator."""
    plan = _plans[op] = Plan(op)
    return lambda *args, **kwargs: run(plan, args, kwargs)


def run(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run one call on the CPU's kernel and return what the device would: neuron tensors, or the arguments written."""
    host_args = [_argument(plan, plan.names[i], value) for i, value in enumerate(args)]
    host_kwargs = {
        name: _out(plan, name, value) if name in plan.outs else _argument(plan, name, value)
        for name, value in kwargs.items()
    }
    onto = on_neuron
    if plan.has_device:
        target = plan.argument("device", args, kwargs)
        if target is not None and target.type != NAME:
            host_kwargs["device"], onto = target, _stays
    result = plan.op(*host_args, **host_kwargs)
    if plan.outs:
        _fill_outs(plan, host_kwargs, kwargs)
    if plan.is_new:
        return _new(result, onto)
    if len(plan.returns) == 1:
        return plan.argument(plan.returns[0], args, kwargs)  # type: ignore[arg-type]
    return tuple(
        _new(value, onto) if name is None else plan.argument(name, args, kwargs)
        for name, value in zip(plan.returns, result, strict=True)
    )


# ---- arguments


def _argument(plan: Plan, name: str, value: Any) -> Any:
    if isinstance(value, Tensor):
        if not value.is_cpu:
            return on_host(value) if value.device.type == NAME else _refuse(plan, name, value)
        # a number that became a tensor is on the CPU for every device; what takes a device= is a way to get there
        if (value.dim() == 0 and name not in plan.written) or name in plan.may_be_on_cpu or plan.has_device:
            return value
        return _refuse(plan, name, value)
    kind = type(value)
    if kind is list or kind is tuple:
        return [_argument(plan, name, item) for item in value]
    if kind is torch.device:
        check_device(value)
        return _HOST
    if kind is torch.Generator:
        raise RuntimeError(f"Expected a 'neuron' device type for generator but found '{value.device}'")
    if value is True and name == "pin_memory":
        raise RuntimeError("Only dense CPU tensors can be pinned, neuron tensors are on the device")
    return value


def check_device(device: torch.device) -> torch.device:
    """Refuse a neuron device that is not there; the emulation has one."""
    if device.type == NAME and device.index not in (None, 0):
        raise RuntimeError(f"there is no {device}: the emulated neuron device has one core, neuron:0")
    return device


def _refuse(plan: Plan, name: str, value: Tensor) -> Any:
    raise RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, neuron:0 and {value.device}! "
        f"(when checking argument {name} of {plan.name})"
    )


# ---- results


def _new(result: Any, onto: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(result, Tensor):
        return onto(result)
    if isinstance(result, (list, tuple)):
        return type(result)(_new(item, onto) for item in result)
    return result


def _stays(tensor: Tensor) -> Tensor:
    return tensor


# ---- out=


def _out(plan: Plan, name: str, value: Any) -> Any:
    # the CPU's kernel resizes its out=, which memory seen from the other side does not allow: it gets an empty one
    if isinstance(value, Tensor):
        _argument(plan, name, value)
        return torch.empty(0, dtype=value.dtype)
    return [_out(plan, name, item) for item in value]


def _fill_outs(plan: Plan, host_kwargs: dict[str, Any], kwargs: dict[str, Any]) -> None:
    for name in plan.outs & kwargs.keys():
        given, made = kwargs[name], host_kwargs[name]
        pairs = [(given, made)] if isinstance(made, Tensor) else zip(given, made, strict=True)
        for out, host in pairs:
            fill(out, host)


def fill(out: Tensor, made: Tensor) -> None:
    """Give `out` the values of a CPU tensor, and its shape, as out= does."""
    if out.shape != made.shape:
        if out.numel():
            warnings.warn(
                f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not "
                f"match the required output shape {list(made.shape)}.",
                stacklevel=4,
            )
        out.resize_(made.shape)
    on_host(out).copy_(made)
