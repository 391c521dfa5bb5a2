"""How much the assumed choices matter: the kernel again, with one line of arch.DEFAULT_ENGINE the other way."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from kernels_neuron.arch import Arch
from kernels_neuron.errors import KernelError
from kernels_neuron.settings import Settings

from .profile import profile

# what the compiler may do as well: another engine that takes the instruction, the other queue that triggers DMA
OTHER = {
    "tensor_copy": "scalar",
    "tensor_scalar": "scalar",
    "tensor_tensor": "gpsimd",
    "memset": "gpsimd",
    "dma_load": "scalar",
    "dma_store": "sync",
}


@dataclass(frozen=True)
class Choice:
    """One line of the table the other way. body_us and change (of the body) are None where the chip refuses that."""

    what: str
    engine: str
    other: str
    body_us: float | None
    change: float | None

    def to_json(self) -> dict[str, Any]:
        """As `profile --choices --json` prints it."""
        return asdict(self)


def choices(
    kernel: Callable[..., Any], *args: Any, body_us: float, arch: Arch, settings: Settings, **kwargs: Any
) -> list[Choice]:
    """Every line that the kernel leaves open and that matters, the largest change first.

    body_us  of the kernel with the table as it is; the estimate stays that one, whatever is faster here
    The other arguments are those of `profile`.
    """
    found = []
    for what, other in OTHER.items():
        engine = arch.default_engine[what]
        tried = replace(arch, default_engine={**arch.default_engine, what: other})
        try:
            body = profile(kernel, *args, arch=tried, settings=settings, **kwargs).body_us
        except KernelError:
            found.append(Choice(what, engine, other, None, None))
            continue
        if body != body_us:
            found.append(Choice(what, engine, other, body, body / body_us - 1))
    return sorted(found, key=lambda choice: -abs(choice.change or 0.0))
