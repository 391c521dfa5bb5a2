"""From a repo id to a variant's folder in the cache, and what can go wrong on the way, each in its own words.

Finding, download and cache are those of `kernels` and huggingface_hub, so HF_ENDPOINT, HF_HOME, HF_HUB_OFFLINE and
KERNELS_CACHE mean what they mean there.
"""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernels_neuron.artifact import METADATA, VARIANTS
from kernels_neuron.errors import ArtifactError, HubError, UsageError
from kernels_neuron.signing import signature_path

from .lock import Locked

BYTECODE = ["*.pyc", "**/__pycache__/**"]


class RepoMissing(HubError):
    """There is no such repo, or the caller may not see it."""


def download(
    repo: str,
    version: int | None,
    revision: str | None,
    variant: str,
    trust_remote_code: bool | list[str],
    lock: Locked | None = None,
) -> Path:
    """The folder of a variant in the cache, fetched unless it is there. `lock`: what names `revision`, for errors."""
    from huggingface_hub import constants
    from kernels.hf_hub import CACHE_DIR, _get_hf_api

    offline = bool(constants.HF_HUB_OFFLINE)
    api = _get_hf_api()
    name = revision if revision is not None else branch_of(repo, version, offline)
    require_trust(repo, trust_remote_code)
    if not offline:
        _require_variant(api, repo, name, variant, lock)
    snapshot = api.snapshot_download(
        repo,
        repo_type="kernel",
        revision=name,
        allow_patterns=[f"build/{variant}/*", signature_path(variant)],
        ignore_patterns=BYTECODE,
        cache_dir=CACHE_DIR,
        local_files_only=offline,
    )
    return variant_in(Path(snapshot), variant)


def require_trust(repo: str, trust_remote_code: bool | list[str]) -> None:
    """Refuse a repo of a publisher the Hub does not vouch for, unless the caller does; offline nobody can be asked."""
    from huggingface_hub import constants
    from kernels.hf_hub import _check_trust_remote_code

    try:
        _check_trust_remote_code(
            repo, local_files_only=bool(constants.HF_HUB_OFFLINE), trust_remote_code=trust_remote_code
        )
    except ValueError as error:
        raise HubError(
            f"{repo} is not from a publisher that {constants.ENDPOINT} vouches for",
            hint=f"if you trust it, pass trust_remote_code=[{repo!r}]",
        ) from error


def branch_of(repo: str, version: int | None, offline: bool) -> str:
    """The branch of a version, of the newest for None: its name and not its commit, so that the cache remembers it."""
    from kernels._versions import _get_available_versions

    versions = _get_available_versions(repo, local_files_only=offline)
    if version is None and versions:
        version = max(versions)
    if version not in versions:
        where = "the local cache has" if offline else "there is"
        listed = _listed([str(number) for number in sorted(versions)])
        hint = f"pass version={max(versions)}" if versions else "pass revision=, or publish the kernel"
        wanted = "version" if version is None else f"version {version}"
        raise HubError(f"{repo} has no {wanted}, {where} {listed}", hint=_OFFLINE_HINT if offline else hint)
    return f"v{version}"


def _require_variant(api: Any, repo: str, revision: str, variant: str, lock: Locked | None) -> None:
    from huggingface_hub.errors import EntryNotFoundError, RevisionNotFoundError
    from huggingface_hub.hf_api import RepoFolder

    try:
        tree = list(api.list_repo_tree(repo, path_in_repo="build", repo_type="kernel", revision=revision))
    except RevisionNotFoundError as error:
        if lock is not None:
            raise commit_gone(lock) from error
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


def commit_gone(lock: Locked) -> HubError:
    """What to say where the server has no commit of that lock any more."""
    return HubError(
        f"the commit {lock.commit} of {lock.repo_id} that {lock.file} names is gone from the server",
        hint=f"lock what is there now: kernels lock {lock.file.parent}",
    )


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


def _variant_hint(there: list[str]) -> str:
    ours = [name for name in there if name in VARIANTS]
    return f"pass variant={ours[0]!r}" if ours else "build and publish the variant"


def variant_in(folder: Path, variant: str) -> Path:
    """A variant's folder, given that folder itself, a built repo or its build/."""
    if (folder / METADATA).is_file():
        return folder
    parents = [parent for parent in (folder, folder / "build") if parent.is_dir()]
    for parent in parents:
        if (parent / variant / METADATA).is_file():
            return parent / variant
    there = sorted({entry.parent.name for parent in parents for entry in parent.glob(f"*/{METADATA}")})
    raise ArtifactError(f"{folder} has no variant {variant}, there is {_listed(there)}", hint=_variant_hint(there))


def _transport_errors() -> tuple[type[Exception], ...]:
    """The HTTP client's own errors; which client it is depends on the version of huggingface_hub."""
    clients = [sys.modules[name] for name in ("httpx", "httpx2") if name in sys.modules]
    return tuple(client.TransportError for client in clients)


@contextlib.contextmanager
def hub_errors(repo: str) -> Iterator[None]:
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


_OFFLINE_HINT = "run kernels-neuron prefetch once with HF_HUB_OFFLINE unset"
_SERVER_HINT = "check HF_ENDPOINT and that the server runs; a registry is started with kernels-neuron registry serve"
