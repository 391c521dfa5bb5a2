"""Names of older NKI versions that no version from 0.3 on has: they exist, and using one says what replaced it."""

from collections.abc import Callable
from typing import Any, NoReturn

from kernels_neuron.errors import UsageError
from kernels_neuron.sim.context import core_or_none
from kernels_neuron.sim.isa import TABLE
from kernels_neuron.sim.locate import fail
from kernels_neuron.sim.versions import api_version


class Gone:
    """A name that is no more; calling it, indexing it or reading from it is an error that names its successor.

    still  what it does in a run of a version that has it
    """

    def __init__(self, name: str, since: str, instead: str, still: Callable[..., Any] | None = None) -> None:
        self._name = name
        self._since = since
        self._instead = instead
        self._still = still

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        message = f"{self._name} is gone since NKI {self._since}"
        if core_or_none() is None:
            raise UsageError(message, hint=self._instead)
        fail("retired", message, self._instead)

    __getitem__ = _refuse

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        core = core_or_none()
        if self._still is None or core is None or api_version(core.settings.nki) >= api_version(self._since):
            self._refuse()
        return self._still(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __repr__(self) -> str:
        return f"<{self._name}, gone since NKI {self._since}>"


_HOST = "call the kernel with numpy arrays, or through nki.simulate; kernels-neuron profile estimates its time"
# NKI reference, old names and their successors
NKI = {
    "baremetal": ("0.1", _HOST),
    "benchmark": ("0.1", _HOST),
    "profile": ("0.1", _HOST),
    "simulate_kernel": ("0.1", "use nki.simulate(kernel)(..)"),
    "trace": ("0.1", "leave sub-kernels undecorated"),
}
LANGUAGE = {
    "all_reduce": ("0.1", "use nisa.tensor_partition_reduce or nki.collectives.all_reduce"),
    "arange": ("0.1", "use slices or nl.ds"),
    "atomic_rmw": ("0.1", "use nisa.dma_compute"),
    "finfo": ("0.1", "write the number"),
    "fp32": ("0.1", "write the number"),
    "loop_reduce": ("0.1", "accumulate into a tile"),
    "mgrid": ("0.1", "use slices or nl.ds"),
    "nc": ("0.1", "launch the kernel as kernel[2]"),
    "par_dim": ("0.1", "the first dim of an on-chip tile is its partition axis"),
    "spmd_dim": ("0.1", "launch the kernel as kernel[2]"),
    "static_cast": ("0.1", "copy into a tile of the other dtype with nisa.tensor_copy"),
}
ISA = {
    "tensor_copy_dynamic_dst": ("0.4", "use nisa.tensor_copy with dst.ap(.., scalar_offset=..)"),
    "tensor_copy_dynamic_src": ("0.4", "use nisa.tensor_copy with src.ap(.., scalar_offset=..)"),
}
# arguments that calls once had
ARGUMENTS = {
    ("dma_copy", "dst_rmw_op"): "use nisa.dma_compute, which lists dst among its srcs",
    ("dma_copy", "unique_indices"): "use nisa.dma_compute",
    ("nc_matmul", "is_moving_zero"): "it is called is_moving_onezero",
    ("nc_matmul", "psumAccumulateFlag"): "use accumulate",
    ("register_move", "imm"): "it is called src",
    ("sendrecv", "use_gpsimd_dma"): "use dma_engine=nisa.dma_engine.gpsimd_dma",
}


# what those did that a version from 0.3 on still has
STILL: dict[str, Callable[..., Any]] = {
    "tensor_copy_dynamic_dst": TABLE["tensor_copy"],
    "tensor_copy_dynamic_src": TABLE["tensor_copy"],
}


def names(module: str, table: dict[str, tuple[str, str]]) -> dict[str, Gone]:
    """The objects behind the names of `table`."""
    return {name: Gone(f"{module}.{name}", since, instead, STILL.get(name)) for name, (since, instead) in table.items()}
