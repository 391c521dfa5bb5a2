"""Estimated time of a whole model, layer by layer: what the kernels serve, and the unfused operations elsewhere.

The model runs on the meta device, so that nothing is computed; a kernel is priced once for each set of shapes.
"""

import warnings
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from kernels_neuron.arch import Arch, chip
from kernels_neuron.cost.baseline import Baseline, Op, OpRecorder, price
from kernels_neuron.settings import Settings
from kernels_neuron.sim.context import is_launching, using

from .layer_times import credited, runs_in
from .models import KnownModel, build_model, known_model

if TYPE_CHECKING:
    from kernels_neuron.loader import ModuleReport


@dataclass(frozen=True)
class KernelTime:
    """One call of a kernel's operator: its launches and the torch operations of its implementation, launches apart.

    once_us  what only the first call with a parameter takes, to lay it out
    """

    body_us: float
    low_us: float
    high_us: float
    launches: int
    once_us: float


@dataclass(frozen=True)
class ServedLayer:
    """One layer that a kernel serves. Times are estimated, launches apart; low and high over the throttle phases.

    body_us is that of every call but the first, which takes once_us more to lay out the parameters.
    """

    path: str
    kind: str
    kernel: str
    body_us: float
    low_us: float
    high_us: float
    launches: int
    once_us: float
    baseline_us: float
    baseline_launches: int


@dataclass(frozen=True)
class ModelTimes:
    """A model in one call. What no kernel serves is `rest`, counted as unfused operations on both sides.

    fallbacks  calls of swapped layers that no kernel served; they are part of the rest
    kept       (class, reason) -> how many modules keep their forward
    """

    model: str
    call: str
    dtype: str
    arch: str
    lnc: int
    launch_us: float
    served: list[ServedLayer]
    rest: Baseline
    fallbacks: int
    kept: dict[tuple[str, str], int]

    def by_kind(self) -> dict[tuple[str, str], list[ServedLayer]]:
        """(kind, kernel) -> its layers, most of the baseline first."""
        found: dict[tuple[str, str], list[ServedLayer]] = {}
        for layer in self.served:
            found.setdefault((layer.kind, layer.kernel), []).append(layer)
        return dict(sorted(found.items(), key=lambda item: -sum(layer.baseline_us for layer in item[1])))

    @property
    def body_us(self) -> float:
        """With the kernels, launches apart."""
        return sum(layer.body_us for layer in self.served) + self.rest.us

    @property
    def once_us(self) -> float:
        """What the first call takes beyond that, to lay out the parameters."""
        return sum(layer.once_us for layer in self.served)

    @property
    def baseline_us(self) -> float:
        """Without them."""
        return sum(layer.baseline_us for layer in self.served) + self.rest.us

    @property
    def speedup(self) -> float:
        """baseline_us / body_us."""
        return self.baseline_us / self.body_us if self.body_us else 1.0

    @property
    def speedup_range(self) -> tuple[float, float]:
        """Least and greatest over the throttle phases."""
        high, low = (sum(getattr(x, field) for x in self.served) + self.rest.us for field in ("high_us", "low_us"))
        return self.baseline_us / high, self.baseline_us / low

    @property
    def launches(self) -> int:
        """Of kernels and of the operations that are left."""
        return sum(layer.launches for layer in self.served) + self.rest.launches

    @property
    def baseline_launches(self) -> int:
        """One per unfused operation."""
        return sum(layer.baseline_launches for layer in self.served) + self.rest.launches

    @property
    def speedup_with_launch(self) -> float:
        """The same with one launch for every kernel and every operation."""
        unfused = self.baseline_us + self.baseline_launches * self.launch_us
        return unfused / (self.body_us + self.launches * self.launch_us)

    @property
    def unserved_share(self) -> float:
        """Share of baseline_us that no kernel serves."""
        return self.rest.us / self.baseline_us if self.baseline_us else 0.0

    def to_json(self) -> dict[str, Any]:
        """As `bench --model --json` prints it."""
        low, high = self.speedup_range
        return {
            "model": self.model,
            "call": self.call,
            "dtype": self.dtype,
            "arch": self.arch,
            "validated": chip(self.arch).validated,
            "lnc": self.lnc,
            "body_us": self.body_us,
            "once_us": self.once_us,
            "baseline_us": self.baseline_us,
            "speedup": self.speedup,
            "speedup_low": low,
            "speedup_high": high,
            "speedup_with_launch": self.speedup_with_launch,
            "launches": self.launches,
            "baseline_launches": self.baseline_launches,
            "unserved_us": self.rest.us,
            "unserved_share": self.unserved_share,
            "unserved_ops": self.rest.counts,
            "fallbacks": self.fallbacks,
            "kept": [{"class": name, "reason": why, "modules": n} for (name, why), n in self.kept.items()],
            "served": [vars(layer) for layer in self.served],
        }


def bench_model(name: str, dtype: str = "bfloat16", arch: str | Arch = "trn2", lnc: int = 1) -> ModelTimes:
    """Price one call of a model of MODELS, plain and kernelized with the kernels that come with the installation."""
    return time_model(name, known_model(name), dtype, chip(arch), lnc)


def time_model(name: str, known: KnownModel, dtype: str, arch: Arch, lnc: int) -> ModelTimes:
    """Price one call of a model."""
    from kernels_neuron.loader import report
    from kernels_neuron.measure.verify import cores

    from .local import kernelize

    model, call = build_model(known, getattr(torch, dtype))
    with warnings.catch_warnings(action="ignore"):  # that kernels run in the simulator is what is asked for
        kernelize(model, mode="inference")
    layers = {runs_in(module): module for module in report(model).swapped if module.kind != "activation"}
    recorder = _KernelRecorder(dtype, arch, lnc)
    with cores(lnc), recorder, credited(model, layers, recorder.kernels, recorder.ops) as with_kernels:
        call()
    told = report(model)
    # a second one: undoing the first would do, but a plain model is what the other side is
    plain, call = build_model(known, getattr(torch, dtype))
    unfused = OpRecorder(dtype)
    with unfused, credited(plain, layers, unfused.ops) as without:
        call()
    served, replaced = [], Counter[Op]()
    for path, (kernels, around) in with_kernels.items():
        if kernels:
            ops = without[path][0] if path in without else []
            replaced.update(ops)
            served.append(_served(layers[path], kernels, price(around, dtype, arch, lnc), price(ops, dtype, arch, lnc)))
    rest = list((Counter(unfused.ops) - replaced).elements())
    return ModelTimes(
        model=name,
        call=known.call,
        dtype=dtype,
        arch=arch.name,
        lnc=lnc,
        launch_us=arch.launch_us,
        served=served,
        rest=price(rest, dtype, arch, lnc),
        fallbacks=sum(module.fallback_calls for module in told.swapped),
        kept=dict(Counter((module.class_name, module.reason or "") for module in told.kept)),
    )


class _KernelRecorder(OpRecorder):
    """Records torch operations as OpRecorder does, and kernels' operators as what they cost; computes neither."""

    def __init__(self, dtype: str, arch: Arch, lnc: int) -> None:
        super().__init__(dtype)
        self.dtype, self.arch, self.lnc = dtype, arch, lnc
        self.kernels: list[KernelTime] = []
        self._known: dict[Any, KernelTime] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "aten" or is_launching():
            return super().__torch_dispatch__(func, types, args, kwargs)
        key = (func, *map(_shape_of, args))
        if key not in self._known:
            self._known[key] = self._time(func, args)
        self.kernels.append(self._known[key])
        return func(*args, **(kwargs or {}))  # its fake function

    def _time(self, func: Any, args: Any) -> KernelTime:
        """Run the operator's implementation on memory that nobody touches, price-only."""
        from kernels_neuron.cost.profile import profile_run

        implementation = torch.library.get_kernel(func, "CPU")
        first, around = OpRecorder(self.dtype), OpRecorder(self.dtype)
        stand_ins = [_stand_in(arg) for arg in args]
        # the second call is what every later one is: by then, parameters are laid out
        for recorder in (first, around):
            with using(self.arch, Settings(lnc=self.lnc, execute=False)) as runs, recorder:
                implementation.call_boxed(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), *stand_ins)
        profiles = [profile_run(run, self.dtype) for run in runs]
        body, low, high = (sum(getattr(p, field) for p in profiles) for field in ("body_us", "low_us", "high_us"))
        beside = price(around.ops, self.dtype, self.arch, self.lnc)
        once = price(list((Counter(first.ops) - Counter(around.ops)).elements()), self.dtype, self.arch, self.lnc)
        launches = len(profiles) + beside.launches
        return KernelTime(body + beside.us, low + beside.us, high + beside.us, launches, once.us)


def _shape_of(value: Any) -> Any:
    """What decides the price of an argument: shape, strides, dtype and kind of a tensor, else its value."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return (*value.shape, value.stride(), value.dtype, isinstance(value, torch.nn.Parameter))


def _stand_in(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    memory = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
    return torch.nn.Parameter(memory, requires_grad=False) if isinstance(value, torch.nn.Parameter) else memory


def _served(module: "ModuleReport", kernels: list[KernelTime], beside: Baseline, replaced: Baseline) -> ServedLayer:
    """`beside` are the torch operations of the layer around its kernels' operators."""
    return ServedLayer(
        path=module.path,
        kind=module.kind,
        kernel=module.kernel,
        body_us=sum(each.body_us for each in kernels) + beside.us,
        low_us=sum(each.low_us for each in kernels) + beside.us,
        high_us=sum(each.high_us for each in kernels) + beside.us,
        launches=sum(each.launches for each in kernels) + beside.launches,
        once_us=sum(each.once_us for each in kernels),
        baseline_us=replaced.us,
        baseline_launches=replaced.launches,
    )
