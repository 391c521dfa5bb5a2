"""The clone, and which commit a folder's code is of."""

import argparse
import subprocess
from pathlib import Path


def clone(text: str) -> Path:
    """The folder of an argument that names a clone of the library."""
    folder = Path(text).resolve()
    if not ((folder / ".git").exists() and (folder / "test" / "integration").is_dir()):
        raise argparse.ArgumentTypeError(f"{text} is no clone of aws-neuron/nki-library: it has no test/integration")
    return folder


def commit(folder: Path, *parts: str) -> str:
    """The first twelve digits of the checked-out commit, with a `+` if files under `parts` differ from it."""
    revision = _git(folder, "rev-parse", "HEAD")[:12]
    return revision + "+" if parts and _git(folder, "status", "--porcelain", "--", *parts) else revision


def date_of(folder: Path, revision: str) -> str:
    """When a commit that `commit` named was made, in ISO format; "" if the repository does not know it."""
    try:
        return _git(folder, "log", "-1", "--format=%cI", revision.rstrip("+"))
    except subprocess.CalledProcessError:
        return ""


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
