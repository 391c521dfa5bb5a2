"""A case: one workload of one kernel in one dtype, from its input tensors to the error it is allowed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .inputs import Tensor, make
from .tolerance import Comparison, Tolerance, allowed_error, compare

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Case:
    """Kernel x workload x dtype, in plain values that travel between processes. `str(case)` names it.

    inputs      the tensors to make, without the optional inputs this workload leaves out
    absent      the optional inputs left out; they are passed as None
    flops       useful ones, no padding
    terms       K, the products in one sum; 0 where the kind does not sum
    """

    kernel: str
    workload: str
    dtype: str
    entry: str
    use: str
    sizes: dict[str, int]
    args: dict[str, Any]
    inputs: tuple[Tensor, ...]
    absent: tuple[str, ...]
    flops: int
    terms: int
    tolerance: Tolerance
    magnitude_args: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kernel}/{self.workload}/{self.dtype}"

    @property
    def loose(self) -> str | None:
        """Why this case is held to less than the project's default, or None."""
        return self.tolerance.loose

    def make_inputs(self, seed: int = 0) -> "dict[str, torch.Tensor | None]":
        """The inputs on the CPU, filled, laid out and rounded to their dtypes; None for those left out."""
        made: dict[str, torch.Tensor | None] = dict.fromkeys(self.absent)
        return made | make(self.inputs, f"{self.kernel}/{self.workload}", seed)

    @property
    def parameters(self) -> tuple[str, ...]:
        """The inputs that are a model's parameters."""
        return tuple(tensor.name for tensor in self.inputs if tensor.parameter)

    def with_parameters(self, inputs: "dict[str, torch.Tensor | None]") -> "dict[str, torch.Tensor | None]":
        """`inputs` as a model gives them: its parameters are Parameters, without gradients, on the same memory."""
        from torch.nn import Parameter

        parameters = {name: Parameter(inputs[name], requires_grad=False) for name in self.parameters}  # type: ignore[arg-type]
        return {**inputs, **parameters}

    def reference_inputs(self, inputs: "dict[str, torch.Tensor | None]") -> "dict[str, torch.Tensor | None]":
        """`inputs` with floating-point tensors widened to float64: what the reference is called on."""
        return {name: _widened(tensor) for name, tensor in inputs.items()}

    def call(self, function: Callable[..., Any], inputs: "dict[str, torch.Tensor | None]") -> Any:
        """`function` on the inputs and this workload's arguments, all by keyword."""
        return function(**inputs, **self.args)

    def reference(self, function: Callable[..., Any], inputs: "dict[str, torch.Tensor | None]") -> Any:
        """What `function`, the kernel's reference, says in float64."""
        return self.call(function, self.reference_inputs(inputs))

    def allowed(
        self, function: Callable[..., Any], inputs: "dict[str, torch.Tensor | None]", ref: "torch.Tensor"
    ) -> "torch.Tensor":
        """The error allowed at each element of `ref`, which is `self.reference(function, inputs)`.

        A rule that counts roundings of sums needs |A| @ |B|: the reference on absolute inputs, with magnitude_args.
        """
        magnitude = None
        if self.tolerance.rule.sums:
            widened = self.reference_inputs(inputs)
            absolute = {name: _magnitude(tensor) for name, tensor in widened.items()}
            magnitude = function(**absolute, **(self.args | self.magnitude_args))
        return allowed_error(self.tolerance.rule, ref, magnitude, self.terms)

    def compare(
        self, function: Callable[..., Any], inputs: "dict[str, torch.Tensor | None]", out: "torch.Tensor"
    ) -> Comparison:
        """Hold an output for `inputs` against the reference `function`."""
        ref = self.reference(function, inputs)
        return compare(out, ref, self.allowed(function, inputs, ref))


def _widened(tensor: "torch.Tensor | None") -> "torch.Tensor | None":
    import torch

    if tensor is None or not tensor.is_floating_point():
        return tensor
    return tensor.to(torch.float64)


def _magnitude(tensor: "torch.Tensor | None") -> "torch.Tensor | None":
    return tensor.abs() if tensor is not None and tensor.is_floating_point() else tensor
