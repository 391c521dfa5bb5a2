"""Where sources come from: the git commit they stand at, and whether they differ from it."""

import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from kernels_neuron.manifest import SOURCES, Manifest


def provenance(manifest: Manifest) -> dict[str, Any] | None:
    """The provenance block of metadata.json, or None where kernel.toml is not under version control.

    dirty: a tracked file of the repository was changed, or a file under nki_src/ is not tracked (it could ship).
    """
    root = manifest.root
    if _git(root, "ls-files", "--error-unmatch", "--", manifest.path.name) is None:
        return None
    commit = _git(root, "rev-parse", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    untracked = _git(root, "ls-files", "--others", "--exclude-standard", "--", SOURCES)
    if commit is None or changed is None or untracked is None:
        return None
    return {
        "kernel-builder": {"version": f"kernels-neuron {_own_version()}"},
        "kernel": {"commit": commit.strip(), "dirty": bool(changed.strip() or untracked.strip())},
    }


def _own_version() -> str:
    try:
        return metadata.version("kernels-neuron")
    except metadata.PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "--no-optional-locks", *arguments], cwd=folder, capture_output=True, text=True, check=False
        )
    except OSError:  # no git on this machine
        return None
    return done.stdout if done.returncode == 0 else None
