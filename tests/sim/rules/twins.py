"""A legal act and its twin that breaks one rule. docs/rules.md lists them by rule."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from kernels_neuron.errors import KernelError
from kernels_neuron.settings import Settings
from kernels_neuron.sim.run import jit, simulate, simulate_ranks

Act = Callable[[Any], Any]


@dataclass(frozen=True)
class Twin:
    """One rule: what is legal, its twin, and words of the refusal.

    Both take a bench and run as if inside a kernel on it. broken_arch, broken_settings: where the act is the same and
    the chip or the settings break the rule.
    """

    rule: str
    words: str
    legal: Act
    broken: Act
    arch: str = "trn2"
    broken_arch: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    broken_settings: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.rule}-{self.words.replace(' ', '_')[:40]}"

    def holds(self, machine: Callable[..., Any]) -> None:
        """The legal act passes, its twin is refused by name."""
        self.run(machine, self.legal, self.arch, self.settings)
        with pytest.raises(KernelError) as caught:
            settings = self.settings if self.broken_settings is None else self.broken_settings
            self.run(machine, self.broken, self.broken_arch or self.arch, settings)
        assert caught.value.rule == self.rule, str(caught.value)
        assert self.words in str(caught.value)

    def run(self, machine: Callable[..., Any], act: Act, arch: str, settings: Mapping[str, Any]) -> None:
        bench = machine(arch, **settings)
        with bench.inside():
            act(bench)


class Launch(Twin):
    """The same for acts that launch kernels: they take a function that launches one on the chip and settings."""

    def run(self, machine: Callable[..., Any], act: Act, arch: str, settings: Mapping[str, Any]) -> None:
        def launch(kernel: Any, *args: Any, lnc: int | None = None, ranks: int | None = None) -> Any:
            wrapped = jit(kernel) if lnc is None else jit(kernel)[lnc]
            chosen = Settings(**settings)
            if ranks is not None:
                return simulate_ranks(wrapped, [args] * ranks, arch=arch, settings=chosen)
            return simulate(wrapped, *args, arch=arch, settings=chosen)

        act(launch)


X = np.arange(32, dtype=np.float32).reshape(8, 4)
