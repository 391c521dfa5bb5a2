"""nki.typing: annotations for kernel arguments."""

from typing import Any


class _Tensor:
    """`nt.tensor` or `nt.tensor[shape]`: an annotation, never checked."""

    def __getitem__(self, shape: Any) -> "_Tensor":
        return self


tensor = _Tensor()
mutable_tensor = _Tensor()  # an argument the kernel also writes, in older versions
__all__ = ["mutable_tensor", "tensor"]
