"""get_kernel: from a repo or a folder to a loaded module; every check comes before any line of the kernel runs.

Finding, download and cache are upstream's (loader/fetch.py), and LOCAL_KERNELS means what it means there. Only the last
step is our own: `kernels` refuses a neuron variant on a machine without the device, and it runs a kernel without
looking at its digest.
"""

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from kernels_neuron.arch import TARGET, default_chip
from kernels_neuron.artifact import METADATA, VARIANTS, Metadata, digest_problems, import_variant
from kernels_neuron.device import real_torch_neuronx
from kernels_neuron.errors import ArtifactError, UsageError
from kernels_neuron.signing import Trusted, read_trusted, require_signed, signature_path

from .fetch import download, hub_errors, variant_in
from .lock import Locked, locked


class LockWarning(UserWarning):
    """A lock file names a commit and nothing pins the bytes."""


# sees the variant's folder and the bytes of its metadata.json, before anything else is done with them
Check = Callable[[Path, bytes], None]


def get_kernel(
    repo_id: str | Path,
    *,
    version: int | None = None,
    revision: str | None = None,
    lock: Path | str | None = None,
    variant: str = "torch-neuron",
    trust_remote_code: bool | list[str] = False,
    require_signature: bool | Path | str = False,
) -> ModuleType:
    """Load a kernel: download it unless the cache has it, check metadata, digests and NKI version, then import it.

    repo_id            "owner/name" on the Hub or on the registry HF_ENDPOINT names; or a folder, a built repo's or a
                       variant's
    version            the branch v<version>; or revision, a branch, tag or commit. A folder takes neither
    lock               a kernels.lock, or the project's folder: the commit it names, and the bytes that
                       kernels.pins.json beside it pins
    variant            "torch-neuron", or "torch-cpu" for the PyTorch reference
    trust_remote_code  as kernels.get_kernel: needed for publishers the Hub does not vouch for
    require_signature  refuse what nobody signed who is in this file of trusted keys (True: the user's own file)

    Off the device the torch-neuron variant runs on CPU tensors, in the simulator. Loading it twice gives one module.
    Raises HubError for what the server lacks or refuses, ArtifactError for a variant that is damaged or does not fit.
    """
    if variant not in VARIANTS:
        raise UsageError(f"variant is {' or '.join(map(repr, VARIANTS))}, got {variant!r}")
    if revision is not None and (version is not None or lock is not None):
        other = f"version {version}" if version is not None else f"lock {str(lock)!r}"
        raise UsageError(f"get_kernel takes a version, a revision or a lock, got revision {revision!r} and {other}")
    repo = str(repo_id)
    trusted = read_trusted(require_signature) if require_signature is not False else []
    folder = _local_folder(repo_id, pinned=(version, revision, lock) != (None, None, None))
    checks = [_signature_check(None if folder == Path(repo_id) else repo, trusted)] if trusted else []
    if folder is not None:
        return load_variant(variant_in(folder, variant), *checks)
    if (version, revision, lock) == (None, None, None):
        raise UsageError(f"get_kernel needs a version or a revision of {repo}", hint="pass version=1")
    found = locked(repo, lock, version) if lock is not None else None
    if found is not None:
        checks.insert(0, _pin_check(found))
    elif version is not None:
        checks.insert(0, _version_check(repo, version))
    with hub_errors(repo):
        place = download(repo, version, found.commit if found else revision, variant, trust_remote_code, found)
    return load_variant(place, *checks)


def load_variant(folder: Path, *checks: Check) -> ModuleType:
    """Import the variant in `folder`, after the caller's checks, upstream's, the NKI version and the digest."""
    path = folder / METADATA
    if not path.is_file():
        raise ArtifactError(
            f"there is no {path}", hint="name a variant's folder, such as build/NAME/build/torch-neuron"
        )
    # read once: the bytes that are checked here are those whose digests decide what is imported
    data = path.read_bytes()
    metadata = Metadata.parse(data, path)
    for check in checks:
        check(folder, data)
    _check_upstream(folder, metadata, data)
    _check_nki(folder, metadata)
    _check_chip(folder, metadata)
    # an import of bytes that are loaded already does not read them again, and these may be damaged since
    problems = digest_problems(folder, metadata)
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        raise ArtifactError(f"{folder} is not what its metadata says:{listed}", hint="fetch or build the variant again")
    return import_variant(folder, metadata)


def _pin_check(found: Locked) -> Check:
    def check(folder: Path, metadata: bytes) -> None:
        if not found.require_pinned(folder.name, metadata):
            text = f"{found.file} pins no digest of {found.repo_id} {folder.name}: its commit is all that is checked"
            warnings.warn(f"{text}; pin it with kernels-neuron prefetch --lock {found.file}", LockWarning, stacklevel=4)

    return check


def _version_check(repo: str, version: int) -> Check:
    def check(folder: Path, metadata: bytes) -> None:
        said = Metadata.parse(metadata, folder / METADATA).version
        if said != version:
            raise ArtifactError(
                f"{repo} v{version}: {folder / METADATA} says version {said}",
                hint="somebody put another version on that branch; tell its publisher",
            )

    return check


def _signature_check(repo: str | None, trusted: list[Trusted]) -> Check:
    def check(folder: Path, metadata: bytes) -> None:
        name = Metadata.parse(metadata, folder / METADATA).name
        beside = folder.parent.parent / signature_path(folder.name)
        bundle = folder / f"{METADATA}.sigstore"
        signature, sigstore = (file.read_bytes() if file.is_file() else None for file in (beside, bundle))
        require_signed(metadata, signature, sigstore, repo_id=repo or name, trusted=trusted)
        # a signature says who made a variant, and not which repo it was put into
        if repo and name != repo.rpartition("/")[2]:
            raise ArtifactError(f"{repo} holds a signed variant of {name}", hint="tell its publisher")

    return check


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


def _check_upstream(folder: Path, metadata: Metadata, data: bytes) -> None:
    """What `kernels` checks before a load: its own reading of the metadata, minimum version, dependencies."""
    from kernels._rust import Metadata as UpstreamMetadata
    from kernels.backends import parse_backend
    from kernels.python_deps import validate_dependencies
    from kernels.validate import DirtyValidator, MinverValidator

    try:
        theirs = UpstreamMetadata.from_bytes(data)
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


def _check_chip(folder: Path, metadata: Metadata) -> None:
    """Refuse a variant whose own block lists chips among which the one that kernels run on here is not."""
    checked = (metadata.nki or {}).get("archs")
    if metadata.backend != "neuron" or not checked:
        return
    if TARGET not in os.environ and real_torch_neuronx() is not None:
        return  # TorchNeuron asks its device, and has not said which it found
    here = default_chip().name
    if here not in checked:
        raise ArtifactError(
            f"{folder} was checked on {', '.join(map(str, checked))}, kernels run on {here} in this process",
            hint=f"set {TARGET} to one of these chips, or load a version of the kernel that was checked on {here}",
        )
