"""The builder: from kernel.toml and nki_src/ to Hub repos under build/."""

from .check import Problem, check
from .scaffold import scaffold
from .write import Built, build

__all__ = ["Built", "Problem", "build", "check", "scaffold"]
