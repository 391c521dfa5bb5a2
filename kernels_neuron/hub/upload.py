"""Publishing a built kernel through huggingface_hub: what would change, one commit per branch, and reading it back."""

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels_neuron.artifact import METADATA, Metadata, digest_problems
from kernels_neuron.errors import ArtifactError, HubError
from kernels_neuron.signing import SIGNATURES, sign, signature_path

from .card import front_matter_problem
from .gate import Verdict, judge
from .storage.tokens import may

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from huggingface_hub import HfApi

KERNEL = "kernel"
CARD = "README.md"
_DECLINED = {
    401: ("the token is unknown to {endpoint}", "set HF_TOKEN to a token of that server"),
    403: ("{endpoint} lets this token not write: {said}", "set HF_TOKEN to a token that may write there"),
    404: ("{endpoint} has no such repo or revision: {said}", "check --to and --owner"),
    412: ("somebody else published to the same branch meanwhile: {said}", "run publish again"),
}


# huggingface_hub repeats what reads and what creates, but not a commit
_AGAIN_AFTER_SECONDS = (1.0, 3.0, 9.0)
_LONGEST_WAIT_SECONDS = 60.0


class Interrupted(HubError):
    """The line broke or the server is busy: what was asked may have been done or not, and may be asked again."""

    def __init__(self, message: str, *, hint: str | None = None, retry_after: float = 0.0) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


@dataclass(frozen=True)
class Release:
    """A built kernel, read whole: what goes to the version branch, and the card for main."""

    name: str
    version: int
    variants: tuple[str, ...]
    files: Mapping[str, bytes] = field(repr=False)
    card: bytes | None = field(repr=False)

    @property
    def branch(self) -> str:
        """The branch that clients read as this version."""
        return f"v{self.version}"


@dataclass(frozen=True)
class Plan:
    """What an upload would change. Paths are those in the repo; an empty plan changes nothing."""

    repo_id: str
    branch: str
    creates_repo: bool
    creates_branch: bool
    adds: tuple[str, ...]
    changes: tuple[str, ...]
    deletes: tuple[str, ...]
    card_changes: bool
    api: Verdict = field(default_factory=Verdict)
    head: str | None = None
    main: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the target holds this release already."""
        made = self.creates_repo or self.creates_branch or self.card_changes
        return not (made or self.adds or self.changes or self.deletes)


@dataclass(frozen=True)
class Published:
    """Where a release is now. `changed` is False where it was there already and no commit was made."""

    repo_id: str
    branch: str
    commit: str
    url: str
    changed: bool
    files: int
    plan: Plan


def read_release(folder: Path) -> Release:
    """Read build/<name>/; refuses a variant that is not what its metadata says, and variants of two versions."""
    variants = sorted(path.parent for path in folder.glob(f"build/*/{METADATA}"))
    if not variants:
        raise ArtifactError(f"{folder} holds no built variant", hint="run kernels-neuron build")
    versions = set()
    for variant in variants:
        metadata = Metadata.read(variant)
        problems = digest_problems(variant, metadata)
        if problems:
            raise ArtifactError(f"{variant}: {'; '.join(problems)}", hint="run kernels-neuron build again")
        versions.add(metadata.version)
    if len(versions) > 1:
        listed = ", ".join(str(version) for version in sorted(versions))
        raise ArtifactError(f"the variants in {folder} are of versions {listed}", hint="run kernels-neuron build again")
    roots = [*variants, folder / "benchmarks"]
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for root in roots for path in _sources(root)}
    card = folder / CARD
    problem = front_matter_problem(card.read_text(encoding="utf-8", errors="replace")) if card.is_file() else None
    if problem:
        raise ArtifactError(f"{card}: {problem}", hint="correct it, or run kernels-neuron build again")
    names = tuple(variant.name for variant in variants)
    return Release(folder.name, versions.pop(), names, files, card.read_bytes() if card.is_file() else None)


def signed(release: Release, key: "Ed25519PrivateKey") -> Release:
    """The same release with a signature over the metadata.json of each variant."""
    signatures = {
        signature_path(variant): sign(key, release.files[f"build/{variant}/{METADATA}"]) for variant in release.variants
    }
    return replace(release, files={**release.files, **signatures})


def connect(endpoint: str, token: str | None = None) -> "HfApi":
    """A client of the Hub at `endpoint`. Without a token it uses the one that Hugging Face tools would use."""
    from huggingface_hub import HfApi

    if not endpoint.startswith(("http://", "https://")):
        raise HubError(f"{endpoint!r} is not the URL of a Hub", hint="pass http://HOST:PORT or https://huggingface.co")
    return HfApi(endpoint.rstrip("/"), token=token, library_name="kernels-neuron")


def check_rights(api: "HfApi", owner: str | None, names: Sequence[str]) -> str:
    """The owner to publish these repos under (for None the caller), after making sure the token may. Writes nothing."""
    with _explained(api):
        me = api.whoami()
    if not isinstance(me, dict) or "name" not in me:
        raise HubError(f"what answers at {api.endpoint} is not a Hub", hint="correct --to")
    role = me.get("auth", {}).get("accessToken", {}).get("role")
    if role == "read":
        raise HubError(
            f"the token of {me['name']} at {api.endpoint} may only read",
            hint="set HF_TOKEN to a token with the role write",
        )
    mine, owner = me["name"], owner or me["name"]
    grants = me.get("grants")
    if grants is not None:  # our registry says exactly what the token may
        refused = [repo_id for name in names if not may(grants, "write", repo_id := f"{owner}/{name}")]
        hint = f"the token writes {', '.join(scope for scope in grants if may({scope: grants[scope]}, 'write'))}"
    else:  # a Hub names the organizations of the caller
        allowed = [mine, *(org["name"] for org in me.get("orgs", []))]
        refused = [] if owner in allowed else [f"{owner}/{name}" for name in names]
        hint = f"choose --owner from {', '.join(allowed)}"
    if refused:
        raise HubError(f"{mine} may not publish {', '.join(refused)} at {api.endpoint}", hint=hint)
    return owner


def plan_upload(api: "HfApi", release: Release, owner: str) -> Plan:
    """What `upload` would change, read from the target. Writes nothing."""
    repo_id = f"{owner}/{release.name}"
    with _explained(api):
        branches = _branches(api, repo_id)
        main = branches.get("main") if branches else None
        head = branches.get(release.branch) if branches else None
        start = head or main  # a new version branch begins at main
        there = _tree(api, repo_id, start) if start else {}
        on_main = _tree(api, repo_id, main) if main else {}
    # a branch at main has not been published to: what it holds under our folders is inherited
    fresh = head is None or head == main
    stale = (
        ("build/", "benchmarks/", f"{SIGNATURES}/")
        if fresh
        else tuple(f"build/{variant}/" for variant in release.variants)
    )
    adds = tuple(path for path in release.files if path not in there)
    changes = tuple(path for path, data in release.files.items() if path in there and there[path] not in _oids(data))
    deletes = tuple(path for path in sorted(there) if path.startswith(stale) and path not in release.files)
    if not fresh:
        deletes += _stale_signatures(release, there, (*adds, *changes))
    verdict = Verdict()
    if head is not None and not fresh:
        touched = {path.split("/")[1] for path in (*adds, *changes, *deletes) if path.startswith("build/")}
        verdict = judge(release.files, touched, there, lambda path: read_file(api, repo_id, head, path))
    return Plan(
        repo_id,
        release.branch,
        creates_repo=branches is None,
        creates_branch=head is None,
        adds=adds,
        changes=changes,
        deletes=deletes,
        card_changes=release.card is not None and on_main.get(CARD) not in _oids(release.card),
        api=verdict,
        head=head,
        main=main,
    )


def upload(
    api: "HfApi",
    release: Release,
    owner: str,
    *,
    private: bool = False,
    step: Callable[[str], None] = lambda text: None,
) -> Published:
    """Have `release` at <owner>/<name>: one commit on its version branch, one on main for the card, both read back.

    Stale files of the uploaded variants go, other files stay. What is there already is not written again, so a second
    run after an interruption completes the first, and after a success does nothing; where the line breaks or the server
    is busy, such a run is started here, up to three times. A branch that moves meanwhile is an error, never a mixture.
    Refuses a release whose API is narrower or different (hub/gate.py), before it writes. `step` is told what is being
    done.
    """
    for wait in _AGAIN_AFTER_SECONDS:
        try:
            return _upload(api, release, owner, private, step)
        except Interrupted as error:
            seconds = min(max(wait, error.retry_after), _LONGEST_WAIT_SECONDS)
            step(f"{error}; again in {seconds:g} s")
            time.sleep(seconds)
    return _upload(api, release, owner, private, step)


def _upload(api: "HfApi", release: Release, owner: str, private: bool, step: Callable[[str], None]) -> Published:
    plan = plan_upload(api, release, owner)
    plan.api.require_open(plan.repo_id, release.version)
    with _explained(api):
        if plan.creates_repo:
            step(f"create {plan.repo_id}")
            api.create_repo(plan.repo_id, repo_type=KERNEL, private=private, exist_ok=True)
        if plan.creates_branch:
            step(f"create branch {plan.branch}")
            api.create_branch(plan.repo_id, branch=plan.branch, repo_type=KERNEL, exist_ok=True)
    now = plan
    if plan.creates_repo or plan.creates_branch:
        now = plan_upload(api, release, owner)
        now.api.require_open(plan.repo_id, release.version)
    commit = _commit_files(api, release, now, step)
    _commit_card(api, release, now, step)
    step(f"read back {len(release.files)} files")
    _compare(api, now.repo_id, commit, release.files)
    url = f"{api.endpoint}/kernels/{plan.repo_id}"
    return Published(plan.repo_id, plan.branch, commit, url, not plan.is_empty, len(release.files), plan)


def _commit_files(api: "HfApi", release: Release, plan: Plan, step: Callable[[str], None]) -> str:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    assert plan.head is not None
    wanted = [*plan.adds, *plan.changes]
    if not wanted and not plan.deletes:
        return plan.head
    step(f"commit {len(wanted)} files to {plan.branch}" + (f", delete {len(plan.deletes)}" if plan.deletes else ""))
    drops = [CommitOperationDelete(path, is_folder=False) for path in plan.deletes]
    puts = [CommitOperationAdd(path, release.files[path]) for path in wanted]
    title = f"{release.name} {plan.branch}: {', '.join(release.variants)}"
    with _explained(api):
        made = api.create_commit(
            plan.repo_id,
            [*drops, *puts],
            commit_message=title,
            repo_type=KERNEL,
            revision=plan.branch,
            parent_commit=plan.head,
        )
    return made.oid


def _commit_card(api: "HfApi", release: Release, plan: Plan, step: Callable[[str], None]) -> None:
    from huggingface_hub import CommitOperationAdd

    if release.card is None or not plan.card_changes:
        return
    step("commit the card to main")
    with _explained(api):
        api.create_commit(
            plan.repo_id,
            [CommitOperationAdd(CARD, release.card)],
            commit_message=f"card of {release.name} {plan.branch}",
            repo_type=KERNEL,
            revision="main",
            parent_commit=plan.main,
        )


def _compare(api: "HfApi", repo_id: str, commit: str, files: Mapping[str, bytes]) -> None:
    for path, data in files.items():
        if hashlib.sha256(read_file(api, repo_id, commit, path)).digest() != hashlib.sha256(data).digest():
            raise HubError(
                f"{path} of {repo_id} at {commit} reads back with another digest",
                hint="the target is damaged or changes files: do not use this commit",
            )


def read_file(api: "HfApi", repo_id: str, revision: str, path: str) -> bytes:
    """The bytes of one file as the target has them now, past every cache."""
    from huggingface_hub.utils import tqdm

    class NoBar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **{**kwargs, "disable": True})

    with tempfile.TemporaryDirectory() as cache, _explained(api):
        got = api.hf_hub_download(repo_id, path, repo_type=KERNEL, revision=revision, cache_dir=cache, tqdm_class=NoBar)
        return Path(got).read_bytes()


def _stale_signatures(release: Release, there: Mapping[str, str], written: tuple[str, ...]) -> tuple[str, ...]:
    """Signatures there whose metadata.json this release replaces, unless it brings new ones."""
    replaced = [variant for variant in release.variants if f"build/{variant}/{METADATA}" in written]
    paths = [signature_path(variant) for variant in replaced]
    return tuple(path for path in paths if path in there and path not in release.files)


def _sources(root: Path) -> list[Path]:
    paths = [path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return [path for path in paths if path.suffix != ".pyc"]


def _branches(api: "HfApi", repo_id: str) -> dict[str, str] | None:
    from huggingface_hub.errors import RepositoryNotFoundError

    try:
        refs = api.list_repo_refs(repo_id, repo_type=KERNEL)
    except RepositoryNotFoundError:
        return None
    return {branch.name: branch.target_commit for branch in refs.branches}


def _tree(api: "HfApi", repo_id: str, commit: str) -> dict[str, str]:
    """path -> the id by which a Hub knows the content: SHA-256 of an LFS file, git's id of any other."""
    from huggingface_hub.hf_api import RepoFile

    entries = api.list_repo_tree(repo_id, recursive=True, revision=commit, repo_type=KERNEL)
    found = [entry for entry in entries if isinstance(entry, RepoFile)]
    return {entry.path: entry.lfs.sha256 if entry.lfs else entry.blob_id for entry in found}


def _oids(data: bytes) -> tuple[str, str]:
    git = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    return git, hashlib.sha256(data).hexdigest()


@contextmanager
def _explained(api: "HfApi") -> Iterator[None]:
    """Turns what huggingface_hub raises into one HubError that says what to do."""
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalTokenNotFoundError,
        OfflineModeIsEnabled,
    )

    # the HTTP library underneath has changed its name between releases; its root error is a base of the Hub's own
    transport: Any = next(base for base in HfHubHTTPError.__mro__ if base.__name__ == "HTTPError")
    try:
        yield
    except HfHubHTTPError as error:
        raise _declined(error, api.endpoint) from error
    except LocalTokenNotFoundError as error:
        hint = "set HF_TOKEN; kernels-neuron registry serve shows a token the first time"
        raise HubError("publishing takes a token, none is set", hint=hint) from error
    except OfflineModeIsEnabled as error:
        raise HubError("huggingface_hub is told to stay offline", hint="unset HF_HUB_OFFLINE to publish") from error
    except (transport, ConnectionError) as error:
        hint = "start one with kernels-neuron registry serve, or correct --to"
        raise Interrupted(f"no Hub answers at {api.endpoint}: {error}", hint=hint) from error
    except json.JSONDecodeError as error:
        raise HubError(f"what answers at {api.endpoint} is not a Hub", hint="correct --to") from error
    except (HFValidationError, ValueError) as error:
        # a refused card, or a repo id that no Hub takes
        raise HubError(" ".join(str(error).split())) from error


def _declined(error: Any, endpoint: str) -> HubError:
    status = error.response.status_code
    said = " ".join((error.server_message or str(error)).split())
    message, hint = _DECLINED.get(status, ("{endpoint} answered {status}: {said}", None))
    message = message.format(endpoint=endpoint, said=said, status=status)
    if status == 429 or status in (500, 502, 503, 504):
        after = error.response.headers.get("Retry-After", "")
        return Interrupted(message, hint=hint, retry_after=float(after) if after.isdecimal() else 0.0)
    return HubError(message, hint=hint)
