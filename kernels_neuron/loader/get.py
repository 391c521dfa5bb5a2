"""get_kernel: from a repo or a folder to a loaded module; every check comes before any line of the kernel runs.

Finding, download and cache are those of `kernels` and huggingface_hub, so HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE,
KERNELS_CACHE and LOCAL_KERNELS mean what they mean there. Only the last step is our own: `kernels` refuses a neuron
variant on a machine without the device, and it runs a kernel without looking at its digest.
"""

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from kernels_neuron.artifact import METADATA, VARIANTS, Metadata, digest_problems, import_variant
from kernels_neuron.errors import ArtifactError, HubError, UsageError

_BYTECODE = ["*.pyc", "**/__pycache__/**"]


class RepoMissing(HubError):
    """There is no such repo, or the caller may not see it."""


def get_kernel(
    repo_id: str | Path,
    *,
    version: int | None = None,
    revision: str | None = None,
    variant: str = "torch-neuron",
    trust_remote_code: bool | list[str] = False,
) -> ModuleType:
    """Load a kernel: download it unless the cache has it, check metadata, digests and NKI version, then import it.

    repo_id            "owner/name" on the Hub or on the registry HF_ENDPOINT names; or a folder, a built repo's or a
                       variant's
    version            the branch v<version>; or revision, a branch, tag or commit. A folder takes neither
    variant            "torch-neuron", or "torch-cpu" for the PyTorch reference
    trust_remote_code  as kernels.get_kernel: needed for publishers the Hub does not vouch for

    Off the device the torch-neuron variant runs on CPU tensors, in the simulator. Loading it twice gives one module.
    Raises HubError for what the server lacks or refuses, ArtifactError for a variant that is damaged or does not fit.
    """
    if variant not in VARIANTS:
        raise UsageError(f"variant is {' or '.join(map(repr, VARIANTS))}, got {variant!r}")
    if version is not None and revision is not None:
        raise UsageError(f"get_kernel takes a version or a revision, got {version} and {revision!r}")
    folder = _local_folder(repo_id, pinned=version is not None or revision is not None)
    if folder is not None:
        return load_variant(_variant_in(folder, variant))
    repo = str(repo_id)
    if version is None and revision is None:
        raise UsageError(f"get_kernel needs a version or a revision of {repo}", hint="pass version=1")
    with _hub_errors(repo):
        return load_variant(_download(repo, version, revision, variant, trust_remote_code))


def load_variant(folder: Path) -> ModuleType:
    """Import the variant in `folder`, after upstream's metadata checks, the NKI version and the digest."""
    metadata = Metadata.read(folder)
    _check_upstream(folder, metadata)
    _check_nki(folder, metadata)
    # an import of bytes that are loaded already does not read them again, and these may be damaged since
    problems = digest_problems(folder, metadata)
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise ArtifactError(f"{folder} is not what its metadata says:{listed}", hint="fetch or build the variant again")
    return import_variant(folder)


def is_kernel_folder(path: Path) -> bool:
    """Whether a folder is a variant or a built repo."""
    return (path / METADATA).is_file() or any((path / part).is_dir() for part in ("build", *VARIANTS))


def _local_folder(repo_id: str | Path, *, pinned: bool) -> Path | None:
    if isinstance(repo_id, Path):
        if pinned:
            raise UsageError(f"{repo_id} is a folder, which has no versions", hint="leave version and revision out")
        if not repo_id.is_dir():
            raise ArtifactError(f"there is no folder {repo_id}", hint="build it, or name a repo as owner/name")
        return repo_id
    if "LOCAL_KERNELS" in os.environ:
        from kernels.load import _parse_local_kernel_overrides

        override = _parse_local_kernel_overrides(os.environ["LOCAL_KERNELS"]).get(repo_id)
        if override is not None:
            return override
    # a repo needs a version, so a string without one that names a kernel folder can only mean the folder
    return Path(repo_id) if not pinned and is_kernel_folder(Path(repo_id)) else None


def _variant_in(folder: Path, variant: str) -> Path:
    if (folder / METADATA).is_file():
        return folder
    parents = [parent for parent in (folder, folder / "build") if parent.is_dir()]
    for parent in parents:
        if (parent / variant / METADATA).is_file():
            return parent / variant
    there = sorted({entry.parent.name for parent in parents for entry in parent.glob(f"*/{METADATA}")})
    raise ArtifactError(f"{folder} has no variant {variant}, there is {_listed(there)}", hint=_variant_hint(there))


def _download(
    repo: str, version: int | None, revision: str | None, variant: str, trust_remote_code: bool | list[str]
) -> Path:
    from huggingface_hub import constants
    from kernels.hf_hub import CACHE_DIR, _check_trust_remote_code, _get_hf_api

    offline = bool(constants.HF_HUB_OFFLINE)
    api = _get_hf_api()
    name = revision if revision is not None else _branch(repo, version, offline)
    try:
        _check_trust_remote_code(repo, local_files_only=offline, trust_remote_code=trust_remote_code)
    except ValueError as error:
        raise HubError(
            f"{repo} is not from a publisher that {constants.ENDPOINT} vouches for",
            hint=f"if you trust it, pass trust_remote_code=[{repo!r}]",
        ) from error
    if not offline:
        _require_variant(api, repo, name, variant)
    snapshot = api.snapshot_download(
        repo,
        repo_type="kernel",
        revision=name,
        allow_patterns=[f"build/{variant}/*"],
        ignore_patterns=_BYTECODE,
        cache_dir=CACHE_DIR,
        local_files_only=offline,
    )
    return _variant_in(Path(snapshot), variant)


def _branch(repo: str, version: int | None, offline: bool) -> str:
    """The branch of a version. Its name, not its commit, so that the cache remembers it for offline use."""
    from kernels._versions import _get_available_versions

    versions = _get_available_versions(repo, local_files_only=offline)
    if version not in versions:
        where = "the local cache has" if offline else "there is"
        listed = _listed([str(number) for number in sorted(versions)])
        hint = f"pass version={max(versions)}" if versions else "pass revision=, or publish the kernel"
        raise HubError(f"{repo} has no version {version}, {where} {listed}", hint=hint)
    return f"v{version}"


def _require_variant(api: Any, repo: str, revision: str, variant: str) -> None:
    from huggingface_hub.errors import EntryNotFoundError, RevisionNotFoundError
    from huggingface_hub.hf_api import RepoFolder

    try:
        tree = list(api.list_repo_tree(repo, path_in_repo="build", repo_type="kernel", revision=revision))
    except RevisionNotFoundError as error:
        branches = sorted(branch.name for branch in api.list_repo_refs(repo, repo_type="kernel").branches)
        raise HubError(
            f"{repo} has no revision {revision}, there is {_listed(branches)}", hint="pass one of these as revision"
        ) from error
    except EntryNotFoundError:
        tree = []
    there = sorted(Path(item.path).name for item in tree if isinstance(item, RepoFolder))
    if variant not in there:
        raise HubError(
            f"{repo} at {revision} has no variant {variant}, there is {_listed(there)}", hint=_variant_hint(there)
        )


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _variant_hint(there: list[str]) -> str:
    ours = [name for name in there if name in VARIANTS]
    return f"pass variant={ours[0]!r}" if ours else "build and publish the variant"


def _check_upstream(folder: Path, metadata: Metadata) -> None:
    """What `kernels` checks before a load: its own reading of the metadata, minimum version, dependencies."""
    from kernels._rust import Metadata as UpstreamMetadata
    from kernels.backends import parse_backend
    from kernels.python_deps import validate_dependencies
    from kernels.validate import DirtyValidator, MinverValidator

    try:
        theirs = UpstreamMetadata.read_from_file(folder / METADATA)
        for validator in (MinverValidator(), DirtyValidator()):
            validator.validate_metadata(metadata=theirs, variant=folder.name)
        # for the backend the variant was built for; upstream asks for the one it detects, which off the device is cpu
        validate_dependencies(metadata.name.replace("-", "_"), theirs.python_depends, parse_backend(metadata.backend))
    except (ValueError, RuntimeError, ImportError) as error:
        raise ArtifactError(
            f"{folder / METADATA}: {error}", hint="fetch or build the variant again, for the versions installed here"
        ) from error


def _check_nki(folder: Path, metadata: Metadata) -> None:
    """Refuse a variant whose own block lists NKI versions of which this process has none."""
    checked = (metadata.nki or {}).get("versions")
    if metadata.backend != "neuron" or not checked:
        return
    import nki

    here = ".".join(str(getattr(nki, "__version__", "")).split(".")[:2])
    if here and not any(".".join(str(one).split(".")[:2]) == here for one in checked):
        raise ArtifactError(
            f"{folder} was checked with NKI {', '.join(map(str, checked))}, this process has NKI {here}",
            hint="load a version of the kernel that was checked with this NKI, or build it here",
        )


def _transport_errors() -> tuple[type[Exception], ...]:
    """The HTTP client's own errors; which client it is depends on the version of huggingface_hub."""
    clients = [sys.modules[name] for name in ("httpx", "httpx2") if name in sys.modules]
    return tuple(client.TransportError for client in clients)


@contextlib.contextmanager
def _hub_errors(repo: str) -> Iterator[None]:
    """Turn what the clients raise into one sentence that names the repo and the server."""
    from huggingface_hub import constants, errors

    server = constants.ENDPOINT
    try:
        yield
    except errors.HFValidationError as error:
        raise UsageError(f"{repo!r} is no repo id and no kernel folder", hint="name a repo as owner/name") from error
    except errors.GatedRepoError as error:
        raise HubError(f"{repo} on {server} is gated", hint="ask for access there, then set HF_TOKEN") from error
    except errors.RepositoryNotFoundError as error:
        raise RepoMissing(
            f"there is no kernel repo {repo} on {server}",
            hint="check the name and HF_ENDPOINT; a private repo needs HF_TOKEN",
        ) from error
    except errors.OfflineModeIsEnabled as error:
        raise HubError(f"{repo} is not in the cache and HF_HUB_OFFLINE is set", hint=_OFFLINE_HINT) from error
    except errors.LocalEntryNotFoundError as error:
        if constants.HF_HUB_OFFLINE:
            raise HubError(f"{repo} is not in the cache and HF_HUB_OFFLINE is set", hint=_OFFLINE_HINT) from error
        raise HubError(f"{server} stopped answering while {repo} was fetched", hint=_SERVER_HINT) from error
    except errors.HfHubHTTPError as error:
        raise HubError(f"{server} refused {repo}: {str(error).strip().splitlines()[-1]}", hint=_SERVER_HINT) from error
    except _transport_errors() as error:
        raise HubError(f"{server} does not answer: {error}", hint=_SERVER_HINT) from error


_OFFLINE_HINT = "fetch it once with HF_HUB_OFFLINE unset"
_SERVER_HINT = "check HF_ENDPOINT and that the server runs; a registry is started with kernels-neuron registry serve"
