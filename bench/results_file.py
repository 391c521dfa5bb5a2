"""Where a benchmark's numbers come from: written beside them, so that no number stands alone."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any


def environment(*distributions: str) -> dict[str, Any]:
    """Date, commit and whether it had changes, machine, and the versions of these distributions."""
    versions = {name: metadata.version(name) for name in ("kernels-neuron", *distributions)}
    load = round(os.getloadavg()[0], 1)
    machine = {"cpus": os.cpu_count(), "load": load, "python": platform.python_version(), "system": platform.platform()}
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return {
        "date": date,
        "commit": _git("rev-parse", "HEAD"),
        "dirty": bool(_git("diff", "HEAD")),
        **machine,
        **versions,
    }


def write(path: Path | None, row: dict[str, Any]) -> None:
    """Print the result as JSON, and write it to `path` where one is given."""
    text = json.dumps(row, indent=2)
    print(text)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


def _git(*arguments: str) -> str | None:
    root = Path(__file__).parents[1]
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None
