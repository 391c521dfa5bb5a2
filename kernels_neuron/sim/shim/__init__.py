"""Stand-ins for the vendor's `nki` package: a finder that serves our modules under its names."""

from .finder import install, installed

__all__ = ["install", "installed"]
