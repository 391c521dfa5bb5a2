"""neuronxcc and neuronxcc.nki: packages that only lead to neuronxcc.nki.typing, which kernels still import."""

__all__: list[str] = []
