"""Getting kernels and swapping them into models: get_kernel, kernelize, unkernelize, report, check_model."""

from .check import CheckReport, ModuleError, check_model
from .get import get_kernel
from .report import KernelReport, ModuleReport, report
from .swap import SimulatorWarning, kernelize, unkernelize

__all__ = [
    "CheckReport",
    "KernelReport",
    "ModuleError",
    "ModuleReport",
    "SimulatorWarning",
    "check_model",
    "get_kernel",
    "kernelize",
    "report",
    "unkernelize",
]
