"""Results of a bench as a file: the rows, and what they were made from."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from kernels_neuron.builder.provenance import provenance
from kernels_neuron.manifest import Manifest
from kernels_neuron.measure.bench import BenchRow


def write_results(path: Path, rows: Sequence[BenchRow], settings: Mapping[str, Any]) -> None:
    """Write rows with the commit of the kernels, whether it was dirty, the date, versions and settings.

    settings  what was asked of the bench; what is None or empty was not
    """
    came_from = provenance(Manifest.read()) or {}
    kernel = came_from.get("kernel", {})
    content = {
        "commit": kernel.get("commit"),
        "dirty": kernel.get("dirty"),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {name: metadata.version(name) for name in ("kernels-neuron", "torch", "numpy")},
        "settings": {name: value for name, value in settings.items() if value},
        "rows": [row.to_json() for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
