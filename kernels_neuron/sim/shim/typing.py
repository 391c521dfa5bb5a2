"""nki.typing: annotations for kernel arguments."""

from typing import Any


class _Tensor:
    """`nt.tensor[shape]`: an annotation, never checked."""

    def __getitem__(self, shape: Any) -> "_Tensor":
        return self


tensor = _Tensor()
__all__ = ["tensor"]
