"""Tune one kernel of the project: build it, search, and write the table of tiles beside it."""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from kernels_neuron.errors import UsageError
from kernels_neuron.manifest import PACKAGED, Manifest
from kernels_neuron.measure.cases import Filter, tasks
from kernels_neuron.measure.journal import Journal, fingerprint
from kernels_neuron.measure.tune import TuneRow, tune
from kernels_neuron.spec import Spec
from kernels_neuron.tiles import TUNED, merged, read_rows, render

from .local import built_variants


@dataclass(frozen=True)
class Tuned:
    """Outcomes by task, and the file that was written, or None."""

    rows: list[TuneRow]
    written: Path | None


def tune_kernel(
    name: str,
    keep: Filter,
    *,
    budget: int,
    workers: int | None = None,
    executor: Executor | None = None,
    journal: Path | None = None,
    write: bool = True,
    on_priced: Callable[[int, int], None] | None = None,
) -> Tuned:
    """Search the tiles of a kernel on its bench workloads and write the winners into its tuned.py.

    journal  where prices are kept; None: out/tune/<kernel>.jsonl beside kernel.toml

    The rest as in measure.tune.tune.
    """
    manifest = Manifest.read()
    if manifest.path == PACKAGED:
        raise UsageError("the packaged kernels cannot be tuned", hint="run in a folder that has a kernel.toml")
    [kernel] = manifest.select([name])
    spec = Spec.read(kernel.folder)
    if spec.tune is None:
        raise UsageError(
            f"{kernel.name} declares no tile parameters", hint="add [tune] to its spec.toml, see docs/tuning.md"
        )
    table = read_rows(kernel.folder / TUNED, spec.tune)
    variants = built_variants(manifest, [kernel.name])
    path = journal or manifest.root / "out" / "tune" / f"{kernel.name}.jsonl"
    rows = tune(
        tasks([kernel], variants, "bench", keep),
        spec,
        Journal(path, fingerprint(variants[kernel.name])),
        budget=budget,
        workers=workers,
        executor=executor,
        on_priced=on_priced,
    )
    found = [(row.row, row.at) for row in rows if row.row is not None]
    if not (found and write):
        return Tuned(rows, None)
    (kernel.folder / TUNED).write_text(render(kernel.name, merged(table, found)), encoding="utf-8")
    return Tuned(rows, kernel.folder / TUNED)
