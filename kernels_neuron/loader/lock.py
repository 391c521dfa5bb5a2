"""kernels.lock, and the digests this package pins beside it: which commit, and which bytes, a project loads.

kernels.lock is upstream's (`kernels lock` writes it) and has no room for more, so the pins are in a file of their own,
kernels.pins.json. A pin is the SHA-256 of a variant's metadata.json, which lists the digest of every file.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels_neuron.errors import ArtifactError, UsageError

LOCK = "kernels.lock"
PINS = "kernels.pins.json"
SCHEMA = 1


@dataclass(frozen=True)
class Locked:
    """One kernel of a lock file: its commit, and per variant the digest pinned for it."""

    repo_id: str
    version: int | None
    commit: str
    file: Path
    pins: Mapping[str, str]

    def require_pinned(self, variant: str, metadata: bytes) -> bool:
        """Whether a digest is pinned for `variant`. Raises ArtifactError where these bytes have another."""
        pin = self.pins.get(variant)
        found = digest(metadata)
        if pin is not None and pin != found:
            raise ArtifactError(
                f"{self.repo_id} at {self.commit} is not what {pins_file(self.file)} pins: {variant} has the digest "
                f"{found}, pinned is {pin}",
                hint="do not use that server or cache before you know why; a commit never changes by itself",
            )
        return pin is not None


def digest(metadata: bytes) -> str:
    """What a pin says of a variant: the SHA-256 of its metadata.json."""
    return f"sha256:{hashlib.sha256(metadata).hexdigest()}"


def read_lock(path: Path | str) -> dict[str, Locked]:
    """The kernels of a lock file, by repo id. `path` is the file, or the folder of the project it lies in."""
    from kernels._rust import KernelLocks, KernelVersion

    file = Path(path) / LOCK if Path(path).is_dir() else Path(path)
    try:
        locks = KernelLocks.from_json(file.read_text("utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no lock file {file}", hint=f"write it with: kernels lock {file.parent}") from None
    except ValueError as error:  # UnicodeDecodeError is one
        raise UsageError(f"{file} is no lock file: {error}", hint=f"kernels lock {file.parent}") from error
    pins = _read_pins(file)
    found: dict[str, Locked] = {}
    for dependency, lock in locks.items():
        if dependency.repo_id in found:  # a second version, of a dependency: the project's own comes first
            continue
        version = dependency.version
        number = version.version if isinstance(version, KernelVersion.Version) else None
        pinned = pins.get(dependency.repo_id, {})
        mine = pinned.get("variants", {}) if pinned.get("commit") == lock.commit else {}
        found[dependency.repo_id] = Locked(dependency.repo_id, number, lock.commit, file, mine)
    return found


def locked(repo_id: str, path: Path | str, version: int | None = None) -> Locked:
    """What a lock file says of one repo. Refuses a repo it does not name, and another version than the locked."""
    kernels = read_lock(path)
    if repo_id not in kernels:
        listed = ", ".join(sorted(kernels)) or "nothing"
        raise UsageError(
            f"{path} does not lock {repo_id}, it locks {listed}",
            hint=f'add "{repo_id}" to [tool.kernels.dependencies] of pyproject.toml, then: kernels lock',
        )
    found = kernels[repo_id]
    if version is not None and version != found.version:
        raise UsageError(
            f"{found.file} locks version {found.version} of {repo_id}, got version={version}",
            hint="leave version out, or lock again",
        )
    return found


def write_pins(file: Path, pins: Mapping[str, tuple[str, Mapping[str, str]]]) -> None:
    """Pin these kernels beside the lock file, in place of what was pinned: repo id -> (commit, variant -> digest)."""
    rows = {repo: {"commit": commit, "variants": dict(variants)} for repo, (commit, variants) in sorted(pins.items())}
    target = pins_file(file)
    fresh = target.with_name(f".{target.name}.new")
    fresh.write_text(json.dumps({"schema": SCHEMA, "pins": rows}, indent=2) + "\n", "utf-8")
    fresh.replace(target)


def pins_file(lock: Path) -> Path:
    """Where the pins of a lock file lie: kernels.pins.json, or <name>.pins.json beside a lock of another name."""
    return lock.with_name(PINS if lock.name == LOCK else f"{lock.stem}.pins.json")


def _read_pins(lock: Path) -> dict[str, dict[str, Any]]:
    file = pins_file(lock)
    try:
        value = json.loads(file.read_bytes())
        pins = value["pins"]
        if value["schema"] != SCHEMA or not all(isinstance(row["variants"], dict) for row in pins.values()):
            raise ValueError(f"schema is {value['schema']}, this version reads {SCHEMA}")
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # a pin that cannot be read must not mean that nothing is pinned
        raise UsageError(
            f"{file} cannot be read: {error}", hint="restore it, or delete it and prefetch again"
        ) from None
    return pins
