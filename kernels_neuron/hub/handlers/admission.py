"""What a commit's result must be before a branch moves: every variant it touches is what its metadata.json says."""

import base64
import re
from collections.abc import Mapping

from kernels_neuron.artifact import METADATA, Metadata
from kernels_neuron.errors import ArtifactError

from ..storage.disk import Blob
from ..storage.faults import Refused
from ..store import Admission, Store

_VARIANT = re.compile(r"(build/[^/]+)/")
_VERSION_BRANCH = re.compile(r"(?:refs/heads/)?v(\d+)")
_OUTSIDE_DIGEST = (METADATA, f"{METADATA}.sigstore")
_SHOWN = 5


def admission(store: Store) -> Admission:
    """The rule for commits to `store`. A variant without metadata.json passes: no client loads it."""

    def admit(repo_id: str, ref: str, before: Mapping[str, Blob], after: Mapping[str, Blob]) -> None:
        changed = [path for path in {*before, *after} if before.get(path) != after.get(path)]
        for variant in sorted({match[1] for path in changed if (match := _VARIANT.match(path))}):
            prefix = f"{variant}/"
            files = {path.removeprefix(prefix): blob for path, blob in after.items() if path.startswith(prefix)}
            if METADATA in files:
                metadata = _read(store, f"{variant}/{METADATA}", files[METADATA])
                _refuse_if(variant, _version_problems(metadata, ref) + _file_problems(metadata, files))

    return admit


def _read(store: Store, path: str, blob: Blob) -> Metadata:
    try:
        return Metadata.parse(store.blobs.path(blob.sha256).read_bytes(), path)
    except ArtifactError as error:
        raise Refused(str(error), hint="build the kernel again") from error
    except (ValueError, RecursionError) as error:  # numbers too long and nesting too deep for Python's JSON
        raise Refused(f"{path}: not JSON: {error}") from error


def _version_problems(metadata: Metadata, ref: str) -> list[str]:
    match = _VERSION_BRANCH.fullmatch(ref)
    if match and str(metadata.version) != match[1]:
        return [f"{METADATA} says version {metadata.version}, the branch is v{match[1]}"]
    return []


def _file_problems(metadata: Metadata, files: Mapping[str, Blob]) -> list[str]:
    # the digest leaves bytecode out, and Python would run it in place of the source
    problems = [f"{path} is bytecode" for path in sorted(files) if _is_bytecode(path)]
    if not metadata.digest:
        return [*problems, f"{METADATA} has no digest"]
    present = {path: blob for path, blob in files.items() if path not in _OUTSIDE_DIGEST and not _is_bytecode(path)}
    for path, blob in sorted(present.items()):
        if path not in metadata.digest:
            problems.append(f"{path} is not in the digest")
        elif metadata.digest[path] != base64.b64encode(bytes.fromhex(blob.sha256)).decode():
            problems.append(f"{path} does not match its digest")
    return problems + [f"{path} is missing" for path in sorted({*metadata.digest} - {*present})]


def _is_bytecode(path: str) -> bool:
    return path.endswith((".pyc", ".pyo")) or "__pycache__" in path.split("/")


def _refuse_if(variant: str, problems: list[str]) -> None:
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        message = f"{variant} is not what its {METADATA} says: {'; '.join(problems[:_SHOWN])}{more}"
        raise Refused(message, hint="build the kernel again and upload all of the variant in one commit")
