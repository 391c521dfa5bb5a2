"""A pytest plugin: the fixture `nki_sim` runs anybody's NKI kernel in the simulator."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture
def nki_sim() -> Iterator[Callable[..., Any]]:
    """Call it as `nki_sim(kernel, *args, arch="trn2", **kwargs)`: numpy or torch in, the same kind out.

    A kernel that breaks a rule of the chip raises kernels_neuron.errors.KernelError. `nki_sim.instructions` is the
    number of instructions of the last call, so that a test can tell that the kernel ran.
    """
    yield Simulated()


class Simulated:
    """The simulator as a function that remembers how many instructions its last call executed."""

    instructions: int = 0

    def __call__(self, kernel: Callable[..., Any], *args: Any, arch: str = "trn2", **kwargs: Any) -> Any:
        from kernels_neuron.sim.context import using

        with using(arch=arch) as runs:
            result = kernel(*args, **kwargs)
        self.instructions = sum(run.instructions for run in runs)
        return result
