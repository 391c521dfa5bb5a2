"""What a commit's result must be before a branch moves: every variant it touches is what its metadata.json says."""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

from ..storage.disk import Blob
from ..storage.faults import Refused
from ..store import Admission, Store

_VARIANT = re.compile(r"(build/[^/]+)/")
_VERSION_BRANCH = re.compile(r"(?:refs/heads/)?v(\d+)")
_REQUIRED = {"name": str, "id": str, "version": int, "license": str, "python-depends": list, "backend": dict}
_OUTSIDE_DIGEST = ("metadata.json", "metadata.json.sigstore")
_SHOWN = 5


def admission(store: Store) -> Admission:
    """The rule for commits to `store`. A variant without metadata.json passes: no client loads it."""

    def admit(repo_id: str, ref: str, before: Mapping[str, Blob], after: Mapping[str, Blob]) -> None:
        changed = [path for path in {*before, *after} if before.get(path) != after.get(path)]
        for variant in sorted({match[1] for path in changed if (match := _VARIANT.match(path))}):
            blob = after.get(f"{variant}/metadata.json")
            if blob is None:
                continue
            files = {path.removeprefix(f"{variant}/"): b for path, b in after.items() if path.startswith(f"{variant}/")}
            metadata, problems = _read(store.blobs.path(blob.sha256).read_bytes())
            problems += _version_problems(metadata, ref) + (
                _bytecode_problems(files) or _digest_problems(metadata, files)
            )
            if problems:
                raise Refused(f"{variant}/metadata.json: {_listed(problems)}", hint="build the kernel again")

    return admit


def _read(data: bytes) -> tuple[dict[str, Any], list[str]]:
    try:
        metadata = json.loads(data)
    except (ValueError, RecursionError):
        return {}, ["is not JSON"]
    if not isinstance(metadata, dict):
        return {}, ["is not a JSON object"]
    missing = [f"{key} is missing" for key in _REQUIRED if key not in metadata]
    wrong = [
        f"{key} is not a {kind.__name__}"
        for key, kind in _REQUIRED.items()
        if key in metadata and (not isinstance(metadata[key], kind) or isinstance(metadata[key], bool))
    ]
    return metadata, missing + wrong


def _version_problems(metadata: Mapping[str, Any], ref: str) -> list[str]:
    match = _VERSION_BRANCH.fullmatch(ref)
    version = metadata.get("version")
    if match and isinstance(version, int) and str(version) != match[1]:
        return [f"version is {version}, the branch is v{match[1]}"]
    return []


def _digest_problems(metadata: Mapping[str, Any], files: Mapping[str, Blob]) -> list[str]:
    digest = metadata.get("digest")
    listed = digest.get("files") if isinstance(digest, dict) else None
    if not isinstance(digest, dict) or not isinstance(listed, dict) or digest.get("algorithm") != "sha256":
        return ["digest is missing or not of the form {algorithm: sha256, files: {...}}"]
    present = {path: _base64(blob.sha256) for path, blob in files.items() if path not in _OUTSIDE_DIGEST}
    problems = [
        f"digest of {path} does not match its content" if path in listed else f"{path} is not in the digest"
        for path, sha256 in sorted(present.items())
        if listed.get(path) != sha256
    ]
    return problems + [f"{path} is in the digest but not in the commit" for path in sorted({*listed} - {*present})]


def _bytecode_problems(files: Mapping[str, Blob]) -> list[str]:
    # the digest leaves bytecode out, and Python would run it in place of the source
    found = [path for path in files if path.endswith((".pyc", ".pyo")) or "__pycache__" in path.split("/")]
    return [f"{path} is bytecode" for path in sorted(found)]


def _base64(hexdigest: str) -> str:
    return base64.b64encode(bytes.fromhex(hexdigest)).decode()


def _listed(problems: list[str]) -> str:
    more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return "; ".join(problems[:_SHOWN]) + more
