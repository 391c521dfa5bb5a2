"""Estimated time of each swapped layer of a model, and of the unfused PyTorch operations it replaced."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels_neuron.arch import Arch, chip

if TYPE_CHECKING:
    import torch

    from kernels_neuron.cost.baseline import Op
    from kernels_neuron.loader import ModuleReport
    from kernels_neuron.sim.context import Run


@dataclass(frozen=True)
class LayerTime:
    """One layer in one batch.

    body_us        its kernels and the torch operations around them, launches apart
    baseline_us    the unfused operations it replaced, one after another
    launches, baseline_launches   how many kernels and operations these are; launch_us is what one launch takes
    engines_us     engine -> how long it is busy in these kernels
    """

    layer: str
    kind: str
    body_us: float
    baseline_us: float
    launches: int
    baseline_launches: int
    launch_us: float
    engines_us: dict[str, float]

    def row(self) -> dict[str, Any]:
        """The layer as report.json lists it."""
        estimated_us = self.body_us + self.launches * self.launch_us
        unfused_us = self.baseline_us + self.baseline_launches * self.launch_us
        return {
            "layer": self.layer,
            "kind": self.kind,
            "body_us": self.body_us,
            "estimated_us": estimated_us,
            "baseline_us": self.baseline_us,
            "speedup": self.baseline_us / self.body_us if self.body_us else None,
            "launches": self.launches,
            "baseline_launches": self.baseline_launches,
            "launch_us": self.launch_us,
            "speedup_with_launch": unfused_us / estimated_us if estimated_us else None,
        }


def layer_times(
    model: "torch.nn.Module", plain: "torch.nn.Module", pixels: "torch.Tensor", arch_name: str
) -> list[LayerTime]:
    """Run one batch through a kernelized model and through the plain one, and price what each swapped layer did.

    What a layer does includes the torch operations around its kernels, and not what a swapped layer inside it does.
    """
    import torch

    from kernels_neuron.cost.baseline import OpRecorder
    from kernels_neuron.loader import report
    from kernels_neuron.sim.context import using

    arch, dtype = chip(arch_name), str(pixels.dtype).removeprefix("torch.")
    # an activation inside a product has no forward of its own, and a hook on it would tear the product apart
    layers = {runs_in(module): module for module in report(model).swapped if module.kind != "activation"}
    around, unfused = OpRecorder(dtype), OpRecorder(dtype)
    with torch.no_grad(), using(arch=arch) as runs, around, credited(model, layers, runs, around.ops) as kernels:
        model(pixels)
    with torch.no_grad(), unfused, credited(plain, layers, unfused.ops) as replaced:
        plain(pixels)
    return [
        _time(layers[path], launched, ops, replaced[path][0], dtype, arch) for path, (launched, ops) in kernels.items()
    ]


def runs_in(module: "ModuleReport") -> str:
    """The path whose call runs this layer: a fused layer's own forward is never called, its parent's is."""
    return module.path.rpartition(".")[0] if module.kind == "linear-gelu" else module.path


def _time(
    module: "ModuleReport", runs: "list[Run]", around: "list[Op]", replaced: "list[Op]", dtype: str, arch: Arch
) -> LayerTime:
    from kernels_neuron.cost.baseline import price
    from kernels_neuron.cost.profile import profile_run

    profiles = [profile_run(run, dtype) for run in runs]
    engines: dict[str, float] = {}
    for profile in profiles:
        for engine, share in profile.engines.items():
            engines[engine] = engines.get(engine, 0.0) + share * profile.body_us
    beside, unfused = price(around, dtype, arch), price(replaced, dtype, arch)
    return LayerTime(
        layer=module.path,
        kind=module.kind,
        body_us=sum(profile.body_us for profile in profiles) + beside.us,
        baseline_us=unfused.us,
        launches=len(profiles) + beside.launches,
        baseline_launches=unfused.launches,
        launch_us=arch.launch_us,
        engines_us=engines,
    )


@contextmanager
def credited(
    model: "torch.nn.Module", paths: Mapping[str, object], *streams: list[Any]
) -> Iterator[dict[str, tuple[list[Any], ...]]]:
    """While open, whatever is appended to `streams` is credited to the innermost module of `paths` that is running."""
    credit: dict[str, tuple[list[Any], ...]] = {}
    seen = [len(stream) for stream in streams]
    running: list[str] = []

    def settle() -> None:
        for i, stream in enumerate(streams):
            if running:
                credit[running[-1]][i].extend(stream[seen[i] :])
            seen[i] = len(stream)

    def enter(path: str) -> None:
        settle()
        running.append(path)
        credit.setdefault(path, tuple([] for _ in streams))

    def leave() -> None:
        settle()
        running.pop()

    handles = []
    for path in paths:
        module = model.get_submodule(path)
        handles.append(module.register_forward_pre_hook(lambda *_, path=path: enter(path)))
        handles.append(module.register_forward_hook(lambda *_: leave(), always_call=True))
    try:
        yield credit
    finally:
        for handle in handles:
            handle.remove()
