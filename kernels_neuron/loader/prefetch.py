"""prefetch: everything a later load with HF_HUB_OFFLINE=1 asks the cache for, by version, by revision and by lock."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernels_neuron.artifact import METADATA, Metadata, digest_problems
from kernels_neuron.errors import ArtifactError, HubError, UsageError

from .fetch import BYTECODE, branch_of, commit_gone, hub_errors, require_trust
from .lock import Locked, digest, read_lock, write_pins

Step = Callable[[str], None]


@dataclass(frozen=True)
class Fetched:
    """One repo in the cache: the revision asked for, the commit it is, and the digest of each of its variants."""

    repo_id: str
    revision: str
    commit: str
    digests: Mapping[str, str]
    files: int
    size: int
    pinned: bool


def prefetch(
    repos: Iterable[str] = (),
    *,
    lock: Path | str | None = None,
    trust_remote_code: bool | list[str] = False,
    step: Step = lambda text: None,
) -> list[Fetched]:
    """Download kernels whole, check the digest of every variant, and return a row for each.

    repos  "owner/name" for the newest version, or "owner/name@revision": v1, a branch, a tag, a commit
    lock   a kernels.lock or the folder it lies in: everything it names, at its commits, held to the digests that are
           pinned beside it; those that are not yet pinned are

    The whole repo and not one variant: the offline path of `kernels` and huggingface_hub wants every file of a commit.
    What is in the cache and whole is not fetched again; what is damaged is, once.
    """
    rows = []
    for name in repos:
        repo, _, revision = name.partition("@")
        rows.append(_fetch(repo, revision or None, trust_remote_code, None, step))
    if lock is not None:
        kernels = read_lock(lock)
        rows += [_fetch(repo, one.commit, trust_remote_code, one, step) for repo, one in kernels.items()]
        _pin(list(kernels.values()), rows)
    if not rows:
        raise UsageError("prefetch needs a repo or a lock file", hint="name one as owner/name, or pass --lock")
    return rows


def _fetch(
    repo: str, revision: str | None, trust_remote_code: bool | list[str], lock: Locked | None, step: Step
) -> Fetched:
    from huggingface_hub import constants
    from huggingface_hub.errors import RevisionNotFoundError
    from kernels.hf_hub import CACHE_DIR, _get_hf_api

    if constants.HF_HUB_OFFLINE:
        raise HubError("prefetch downloads, and HF_HUB_OFFLINE is set", hint="unset HF_HUB_OFFLINE")

    def snapshot(force: bool) -> Path:
        options = {"repo_type": "kernel", "cache_dir": CACHE_DIR, "ignore_patterns": BYTECODE}
        return Path(_get_hf_api().snapshot_download(repo, revision=name, force_download=force, **options))

    with hub_errors(repo):
        name = revision or branch_of(repo, None, offline=False)
        require_trust(repo, trust_remote_code)
        step(f"fetch {repo} at {name}")
        try:
            place = snapshot(force=False)
            if _damage(place):
                step(f"fetch {repo} again: the cache is damaged")
                place = snapshot(force=True)
        except RevisionNotFoundError as error:
            if lock is not None:
                raise commit_gone(lock) from error
            raise HubError(f"{repo} has no revision {name}", hint="see kernels versions") from error
    damage = _damage(place)
    if damage:
        raise ArtifactError(
            f"{repo} at {name} is damaged at its source: {'; '.join(damage)}", hint="tell its publisher"
        )
    variants = {variant.name: (variant / METADATA).read_bytes() for variant in _variants(place)}
    if lock is not None:
        for variant, metadata in variants.items():
            lock.require_pinned(variant, metadata)
    files = [path for path in place.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    digests = {variant: digest(metadata) for variant, metadata in variants.items()}
    return Fetched(repo, name, place.name, digests, len(files), size, pinned=lock is not None)


def _pin(kernels: list[Locked], rows: list[Fetched]) -> None:
    """Pin what the lock names; what was pinned before was held to it when it was fetched."""
    pins = {row.repo_id: (row.commit, row.digests) for row in rows if row.pinned}
    if any(dict(one.pins) != dict(pins[one.repo_id][1]) for one in kernels):
        write_pins(kernels[0].file, pins)


def _variants(place: Path) -> list[Path]:
    return sorted(path.parent for path in place.glob(f"build/*/{METADATA}"))


def _damage(place: Path) -> list[str]:
    found = []
    for variant in _variants(place):
        try:
            metadata = Metadata.read(variant)
        except ArtifactError as error:
            found.append(str(error))
            continue
        # an older build has no digest: `get_kernel` here refuses it, and upstream loads it
        problems = digest_problems(variant, metadata) if metadata.digest else []
        found += [f"{variant.name}/{problem}" for problem in problems]
    return found
