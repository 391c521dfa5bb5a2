"""Results of a bench as a file: the rows, and what they were made from."""

import json
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from kernels_neuron.builder.provenance import provenance
from kernels_neuron.manifest import Manifest
from kernels_neuron.measure.bench import BenchRow
from kernels_neuron.settings import Settings


def environment(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Commit of the kernels and whether it was dirty (None outside of git), date, versions, machine and settings.

    settings  what was asked of the bench; what is None or empty was not
    """
    came_from = provenance(Manifest.read()) or {}
    kernel = came_from.get("kernel", {})
    return {
        "commit": kernel.get("commit"),
        "dirty": kernel.get("dirty"),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: metadata.version(name) for name in ("kernels-neuron", "torch", "numpy")}
        | {"python": platform.python_version(), "nki": Settings().nki},
        "machine": platform.platform(),
        "settings": {name: value for name, value in settings.items() if value},
    }


def write_results(
    path: Path, rows: Sequence[BenchRow], lacking: Mapping[str, Sequence[str]], settings: Mapping[str, Any]
) -> None:
    """Write rows with the environment they were made in, and the chips that kernels are not made for."""
    content = {**environment(settings), "lacking": lacking, "rows": [row.to_json() for row in rows]}
    path.write_text(json.dumps(content, indent=1) + "\n")
