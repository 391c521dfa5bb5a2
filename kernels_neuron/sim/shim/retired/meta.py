"""nki.meta: the package that nki.tensor moved to."""

__all__: list[str] = []
