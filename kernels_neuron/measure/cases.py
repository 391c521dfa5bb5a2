"""Which rows there are: kernel x workload x dtype x chip x cores, filtered, as tasks that travel between processes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels_neuron.arch import CHIPS, chip
from kernels_neuron.errors import UsageError
from kernels_neuron.manifest import Kernel
from kernels_neuron.spec import Case, Spec
from kernels_neuron.tables import unknown

ARCHS = ("trn2", "trn3")
LNCS = (1, 2)
PAIRED = 3  # the generation from which two physical cores make a logical one


@dataclass(frozen=True)
class Task:
    """One row to make: a case of a built variant, on one chip, on one or two physical cores."""

    variant: Path
    case: Case
    arch: str
    lnc: int

    def __str__(self) -> str:
        return f"{self.case}/{self.arch}/lnc{self.lnc}"


@dataclass(frozen=True)
class Filter:
    """What to keep; None keeps everything."""

    workloads: tuple[str, ...] | None = None
    dtypes: tuple[str, ...] | None = None
    archs: tuple[str, ...] | None = None
    lncs: tuple[int, ...] | None = None

    @classmethod
    def of(
        cls,
        workloads: Sequence[str] | None = None,
        dtypes: Sequence[str] | None = None,
        archs: Sequence[str] | None = None,
        lncs: Sequence[int] | None = None,
    ) -> "Filter":
        """A filter from lists, an empty one keeping everything."""
        lists = [tuple(each or ()) or None for each in (workloads, dtypes, archs, lncs)]
        return cls(*lists)  # type: ignore[arg-type]


def tasks(kernels: Iterable[Kernel], variants: Mapping[str, Path], use: str, keep: Filter | None = None) -> list[Task]:
    """The tasks of `kernels`, whose built variants are `variants`, in the order of kernels and workloads.

    use  "test": the cases verify runs, "bench": those bench times

    A filter that names something no kernel has is refused; one that names what only some have, keeps those.
    """
    keep = keep or Filter()
    specs = {kernel.name: Spec.read(kernel.folder) for kernel in kernels}
    _refuse_unknown(keep, list(specs.values()))
    found = []
    for name, spec in specs.items():
        archs = archs_of(spec, keep)
        for case in spec.cases(use=use):
            if keep.workloads and case.workload not in keep.workloads:
                continue
            if keep.dtypes and case.dtype not in keep.dtypes:
                continue
            found += [
                Task(variants[name], case, chip(arch).name, lnc)
                for arch in archs
                for lnc in keep.lncs or LNCS
                if lnc == 1 or chip(arch).generation >= PAIRED
            ]
    if not found:
        if not any(archs_of(spec, keep) for spec in specs.values()):
            asked, chips = (
                ", ".join(keep.archs or ()),
                ", ".join(sorted({arch for s in specs.values() for arch in s.archs})),
            )
            raise UsageError(f"{', '.join(specs)}: made for {chips}, not for {asked}", hint="give another --arch")
        raise UsageError(
            f"no case is left for {use}", hint="drop a filter, or `kernels-neuron list` to see what there is"
        )
    return found


def archs_of(spec: Spec, keep: Filter) -> list[str]:
    """The chips asked for that a kernel is made for."""
    return [arch for arch in keep.archs or ARCHS if chip(arch).name in spec.archs]


def lacking(kernels: Iterable[Kernel]) -> dict[str, list[str]]:
    """Chip -> the kernels that are not made for it, chips that all are made for left out."""
    specs = {kernel.name: Spec.read(kernel.folder) for kernel in kernels}
    missing = {arch: [name for name, spec in specs.items() if arch not in spec.archs] for arch in CHIPS}
    return {arch: names for arch, names in missing.items() if names}


def _refuse_unknown(keep: Filter, specs: Sequence[Spec]) -> None:
    workloads = sorted({workload.name for spec in specs for workload in spec.workloads})
    dtypes = sorted({dtype for spec in specs for dtype in spec.dtypes})
    for noun, asked, known in (("workload", keep.workloads, workloads), ("dtype", keep.dtypes, dtypes)):
        for name in asked or ():
            if name not in known:
                raise UsageError(unknown(noun, name, known))
    for arch in keep.archs or ():
        if chip(arch).name not in CHIPS:
            raise UsageError(unknown("chip", arch, tuple(CHIPS)))
    for lnc in keep.lncs or ():
        if lnc not in LNCS:
            raise UsageError(f"lnc is 1 or 2, got {lnc}")
    alone = [arch for arch in keep.archs or ARCHS if chip(arch).generation < PAIRED]
    if keep.lncs and min(keep.lncs) > 1 and len(alone) == len(keep.archs or ARCHS):
        raise UsageError(f"{', '.join(alone)} has no logical cores of two", hint="leave --lnc out")
