"""Estimated time of each swapped layer of a model, and of the unfused PyTorch operations it replaced."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LayerTime:
    """One layer in one batch. estimated_us: kernels without their launches; baseline_us: one operation after another.

    engines_us   engine -> how long it is busy in these kernels
    """

    layer: str
    kind: str
    estimated_us: float
    baseline_us: float
    engines_us: dict[str, float]

    def row(self) -> dict[str, Any]:
        """The layer as report.json lists it."""
        return {
            "layer": self.layer,
            "kind": self.kind,
            "estimated_us": self.estimated_us,
            "baseline_us": self.baseline_us,
            "speedup": self.baseline_us / self.estimated_us if self.estimated_us else None,
        }


def layer_times(model: Any, plain: Any, pixels: Any, arch: str) -> list[LayerTime]:
    """Run one batch through the swapped and through the plain model, and price what each layer did."""
    return []
