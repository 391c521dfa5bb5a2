"""How one simulated run behaves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """Options of a simulated run; every one has a default that is as strict as the chip.

    nki       NKI API version the kernel is written for, "0.3" to "0.7"
    lnc       physical cores per logical core when the kernel is launched without a grid, 1 or 2
    seed      seed of the random number engines
    watch     tiles to print at each write: one or more names, or places where tiles are made ("kernel.py:12")
    switches  overrides of undocumented behaviour; the names are the keys of kernels_neuron.sim.switches.SWITCHES
    execute   False prices the instructions without computing anything
    reuse     the Python of a kernel behind an operator runs once for arguments of one kind, as TorchNeuron compiles it;
              False: at each launch
    """

    nki: str = "0.7"
    lnc: int = 1
    seed: int = 0
    watch: str | Sequence[str] = ()
    switches: Mapping[str, object] = field(default_factory=dict)
    execute: bool = True
    reuse: bool = True

    def __post_init__(self) -> None:
        watch = (self.watch,) if isinstance(self.watch, str) else tuple(self.watch)
        object.__setattr__(self, "watch", watch)
