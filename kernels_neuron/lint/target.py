"""What a file is linted for: an NKI version, and a chip where one is named."""

from dataclasses import dataclass

from kernels_neuron.arch import CHIPS, Arch, chip
from kernels_neuron.errors import UsageError
from kernels_neuron.tables import unknown

Version = tuple[int, int]

BETA: Version = (0, 0)  # neuronxcc.nki, SDK 2.20 to 2.26
VERSIONS = ("beta", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7")


def parse_version(text: str) -> Version:
    """(0, 3) of "0.3" or "0.3.0"; "beta" is (0, 0)."""
    short = ".".join(text.split(".")[:2])
    if short not in VERSIONS:
        raise UsageError(unknown("NKI version", text, VERSIONS))
    return BETA if short == "beta" else (0, int(short.split(".")[1]))


def spell(version: tuple[int, ...]) -> str:
    """ "0.3" of (0, 3)."""
    return "beta" if version == BETA else f"{version[0]}.{version[1]}"


@dataclass(frozen=True)
class Target:
    """The NKI version and the chip; without a chip only what every chip refuses is a finding."""

    version: Version
    arch: Arch | None = None

    @property
    def chips(self) -> tuple[Arch, ...]:
        """The chips a finding has to hold on, all of them."""
        return (self.arch,) if self.arch else tuple(CHIPS.values())

    @classmethod
    def of(cls, nki: str = "0.7", arch: str | None = None) -> "Target":
        """The target that two words of a command line name."""
        return cls(parse_version(nki), chip(arch) if arch else None)
