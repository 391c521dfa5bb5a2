"""What `torch.neuron` holds on the emulated device: one core, one queue, always ready."""

from collections.abc import Iterable
from types import ModuleType, TracebackType
from typing import Any, Self

import torch

from .dispatch import NAME

DeviceLike = torch.device | str | int | None


def is_available() -> bool:
    """Whether there is a device: the emulated one always is."""
    return True


def is_initialized() -> bool:
    """Whether the device was set up; it needs no setting up."""
    return True


def init() -> None:
    """Set the device up: nothing to do."""


def device_count() -> int:
    """How many neuron devices there are: one."""
    return 1


def current_device() -> int:
    """The index of the device that plain "neuron" means."""
    return 0


def set_device(device: DeviceLike) -> None:
    """Choose the device that plain "neuron" means: there is only 0."""
    _index(device)


def get_device_name(device: DeviceLike = None) -> str:
    """The name of a device; says that it is emulated."""
    _index(device)
    return "emulated Neuron device (kernels-neuron simulator)"


def synchronize(device: DeviceLike = None) -> None:
    """Wait until everything queued is done: every operator here returns when it is done."""
    _index(device)


def empty_cache() -> None:
    """Give cached memory back: none is cached, a tensor's memory goes with the tensor."""


def is_bf16_supported() -> bool:
    """Whether bfloat16 works: yes, as on every Trainium."""
    return True


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes torch.autocast("neuron") may use."""
    return [torch.bfloat16, torch.float16]


# ---- random numbers: operators draw from the CPU's generator, so one seed and one state stand for both


def manual_seed(seed: int) -> None:
    """Seed the generator that neuron and CPU share."""
    torch.default_generator.manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed all devices: see manual_seed."""
    manual_seed(seed)


def get_rng_state(device: DeviceLike = NAME) -> torch.Tensor:
    """The state of the generator that neuron and CPU share."""
    _index(device)
    return torch.default_generator.get_state()


def set_rng_state(new_state: torch.Tensor, device: DeviceLike = NAME) -> None:
    """Set the state of the generator that neuron and CPU share."""
    _index(device)
    torch.default_generator.set_state(new_state)


def get_rng_state_all() -> list[torch.Tensor]:
    """get_rng_state of every device."""
    return [get_rng_state()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """set_rng_state of every device."""
    for state in new_states:
        set_rng_state(state)


def _is_in_bad_fork() -> bool:
    return False


class device:
    """Context manager: the device that plain "neuron" means inside."""

    def __init__(self, device: DeviceLike) -> None:
        self.idx = _index(device)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None


def _index(device: DeviceLike) -> int:
    if device is None:
        return 0
    index: Any = device
    if not isinstance(device, int):
        chosen = torch.device(device)
        if chosen.type != NAME:
            raise ValueError(f"expected a neuron device, got {chosen}")
        index = chosen.index or 0
    if index != 0:
        raise RuntimeError(f"there is no neuron:{index}: the emulated neuron device has one core, neuron:0")
    return 0


_NAMES = (
    "current_device",
    "device",
    "device_count",
    "empty_cache",
    "get_amp_supported_dtype",
    "get_device_name",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "set_device",
    "set_rng_state",
    "set_rng_state_all",
    "synchronize",
    "_is_in_bad_fork",
)


def make_module() -> ModuleType:
    """The module that becomes torch.neuron."""
    module = ModuleType("torch.neuron", "The emulated neuron device of kernels-neuron; see kernels_neuron.device.")
    for name in _NAMES:
        setattr(module, name, globals()[name])
    return module
