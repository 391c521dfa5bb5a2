"""The registry's store: repos, immutable commits and refs in one folder, changed one atomic step at a time."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from secrets import token_hex

from kernels_neuron.errors import HubError

from .storage.disk import Blob, Blobs, locked, make_folder, sync_folder, write_file
from .storage.downloads import Downloads
from .storage.faults import AlreadyThere, Damaged, EntryMissing, Refused, RepoMissing, RevisionMissing, StaleParent
from .storage.names import check_path, check_ref, check_repo_id, check_tree, is_commit
from .storage.records import Commit, Pull, Repo
from .storage.tokens import Tokens

FORMAT = "kernels-neuron registry 1\n"


@dataclass(frozen=True)
class Put:
    """Have this content at this path."""

    path: str
    blob: Blob


@dataclass(frozen=True)
class Drop:
    """Have nothing at this path: a file, or with folder=True all that lies in a folder."""

    path: str
    folder: bool = False


Operation = Put | Drop
# sees repo, branch or pull request, files before and after; raises Refused where the result must not be kept
Admission = Callable[[str, str, Mapping[str, Blob], Mapping[str, Blob]], None]


@dataclass(frozen=True)
class Message:
    """What a commit says of itself."""

    title: str
    author: str
    text: str = ""


class Store:
    """Repos under one folder. Every write is on disk when the call returns, or has not happened.

    root/format                     what this folder is
    root/tokens.json                token hashes
    root/downloads.json             counts
    root/blobs/ab/<sha256>          contents, shared by all repos, never changed
    root/repos/<owner>/<name>/      commits/<id>.json, never changed, and repo.json: the refs, replaced whole
    root/scratch/                   what is being written; whatever a crash leaves here was never visible
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self._repos = self.root / "repos"
        self._scratch = self.root / "scratch"
        self.lock = self.root / "store.lock"  # whoever changes a ref, or removes a content, holds it
        self._check_format()
        for folder in (self._repos, self._scratch, self.root / "blobs"):
            make_folder(folder)
        if not self._format.exists():
            write_file(self._format, FORMAT.encode(), scratch=self._scratch)
        self.blobs = Blobs(self.root / "blobs", self._scratch)
        self.downloads = Downloads(self.root / "downloads.json", self._scratch)
        self.tokens = Tokens(self.root / "tokens.json", scratch=self._scratch)
        self._read_commit = lru_cache(maxsize=256)(self._read_commit_file)

    @classmethod
    def existing(cls, root: Path) -> "Store":
        """The registry in `root`; an error where there is none, instead of a new one."""
        if not (root / "format").is_file():
            raise HubError(f"there is no registry in {root}", hint="pass --root, or start one: registry serve")
        return cls(root)

    @property
    def _format(self) -> Path:
        return self.root / "format"

    def _check_format(self) -> None:
        if self._format.exists() and self._format.read_text() != FORMAT:
            raise Damaged(
                f"{self._format} says {self._format.read_text().strip()!r}, this version reads {FORMAT.strip()!r}",
                hint="use the version of kernels-neuron that wrote this registry",
            )

    def recover(self) -> int:
        """Remove what a crash left half-written and return how many things that were. Only while nobody writes."""
        left = list(self._scratch.iterdir())
        for path in left:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        return len(left)

    # repos

    def ids(self) -> list[str]:
        """Every repo's owner/name, in order."""
        found = self._repos.glob("*/*/repo.json")
        return sorted(f"{path.parent.parent.name}/{path.parent.name}" for path in found)

    def repo(self, repo_id: str) -> Repo:
        """A repo's refs as they are now."""
        try:
            return Repo.read(repo_id, (self._folder(repo_id) / "repo.json").read_bytes())
        except (FileNotFoundError, NotADirectoryError, Refused):
            raise RepoMissing(f"there is no repo {repo_id}") from None

    def create(self, repo_id: str, *, author: str, private: bool = False) -> Repo:
        """A new repo with the branch main at an empty commit."""
        folder = self._folder(repo_id)
        with locked(self.lock):
            self._refuse_lookalike(repo_id)
            date = now()
            first, data = Commit.make(None, {}, title="initial commit", author=author, date=date)
            repo = Repo(repo_id, private, date, {"main": first.id}, {}, {})
            draft = self._scratch / token_hex(8)
            make_folder(draft / "commits")
            write_file(draft / "commits" / f"{first.id}.json", data, scratch=self._scratch)
            write_file(draft / "repo.json", repo.to_bytes(), scratch=self._scratch)
            make_folder(folder.parent)
            draft.rename(folder)
            sync_folder(folder.parent)
        return repo

    def delete(self, repo_id: str) -> None:
        """Remove a repo with its history; its blobs stay for others."""
        with locked(self.lock):
            self.repo(repo_id)
            grave = self._scratch / token_hex(8)
            folder = self._folder(repo_id)
            folder.rename(grave)
            sync_folder(folder.parent)
            self._drop_empty(folder.parent)
        shutil.rmtree(grave)

    def move(self, old: str, new: str) -> None:
        """Give a repo another owner or name."""
        with locked(self.lock):
            self.repo(old)
            source, target = self._folder(old), self._folder(new)
            self._refuse_lookalike(new, but=old)
            make_folder(target.parent)
            source.rename(target)
            sync_folder(target.parent)
            sync_folder(source.parent)
            self._drop_empty(source.parent)

    def update(self, repo_id: str, change: Callable[[Repo], Repo]) -> Repo:
        """Replace a repo's refs by change(refs), with nobody in between."""
        with locked(self.lock):
            repo = change(self.repo(repo_id))
            self._write_repo(repo)
        return repo

    # refs

    def create_branch(self, repo_id: str, name: str, start: str = "main") -> None:
        """A branch at the commit that `start` names."""
        check_ref(name)

        def change(repo: Repo) -> Repo:
            if name in repo.branches:
                raise AlreadyThere(f"branch {name} of {repo_id} exists")
            return repo.moved(name, self.resolve(repo, start))

        self.update(repo_id, change)

    def delete_branch(self, repo_id: str, name: str) -> None:
        """Remove a branch; its commits stay readable by id."""

        def change(repo: Repo) -> Repo:
            if name == "main":
                raise Refused("the branch main cannot be deleted")
            if name not in repo.branches:
                raise RevisionMissing(f"{repo_id} has no branch {name}")
            return replace(repo, branches={key: value for key, value in repo.branches.items() if key != name})

        self.update(repo_id, change)

    def create_tag(self, repo_id: str, name: str, target: str) -> None:
        """A tag at the commit that `target` names."""
        check_ref(name)

        def change(repo: Repo) -> Repo:
            if name in repo.tags:
                raise AlreadyThere(f"tag {name} of {repo_id} exists")
            return replace(repo, tags={**repo.tags, name: self.resolve(repo, target)})

        self.update(repo_id, change)

    def delete_tag(self, repo_id: str, name: str) -> None:
        """Remove a tag."""

        def change(repo: Repo) -> Repo:
            if name not in repo.tags:
                raise RevisionMissing(f"{repo_id} has no tag {name}")
            return replace(repo, tags={key: value for key, value in repo.tags.items() if key != name})

        self.update(repo_id, change)

    def resolve(self, repo: Repo, revision: str) -> str:
        """The commit id of a branch, tag, pull request, full ref, or of a commit of this repo."""
        target = repo.target(revision)
        if target is None and is_commit(revision) and self._commit_path(repo.id, revision).is_file():
            target = revision
        if target is None:
            raise RevisionMissing(f"{repo.id} has no branch, tag or commit {revision}")
        return target

    # commits

    def commit(self, repo: Repo, revision: str) -> Commit:
        """The commit that a revision names."""
        return self._read_commit(repo.id, self.resolve(repo, revision))

    def history(self, repo: Repo, revision: str) -> Iterator[Commit]:
        """A commit and all before it, newest first."""
        commit = self.commit(repo, revision)
        yield commit
        while commit.parent is not None:
            commit = self._read_commit(repo.id, commit.parent)
            yield commit

    def add_commit(
        self,
        repo_id: str,
        ref: str,
        operations: Sequence[Operation],
        message: Message,
        *,
        parent: str | None = None,
        admit: Admission | None = None,
    ) -> Commit:
        """Put and drop files on a branch (or refs/pr/<n>) in one step and return its head.

        parent   refuse with StaleParent unless the ref is still there
        admit    has the last word before the ref moves
        Operations that change nothing make no commit: the present head is returned.
        """
        with locked(self.lock):
            repo = self.repo(repo_id)
            head = self._branch_head(repo, ref)
            if parent is not None and parent != head.id:
                raise StaleParent(f"{ref} of {repo_id} is at {head.id}, not at the parent {parent}")
            files = apply(head, operations)
            if files == head.files:
                return head
            if admit is not None:
                admit(repo_id, ref, head.files, files)
            commit = self._write_commit(repo_id, head.id, files, message)
            self._write_repo(repo.moved(ref, commit.id))
        return commit

    def add_pull(
        self,
        repo_id: str,
        base: str,
        operations: Sequence[Operation],
        message: Message,
        *,
        parent: str | None = None,
        admit: Admission | None = None,
    ) -> tuple[int, Commit]:
        """Like add_commit, but kept at a new refs/pr/<n> and leaving the branch alone. Returns n and the commit."""
        with locked(self.lock):
            repo = self.repo(repo_id)
            head = self._branch_head(repo, base)
            if parent is not None:
                head = self.commit(repo, parent)
            number = len(repo.pulls) + 1
            files = apply(head, operations)
            if admit is not None:
                admit(repo_id, base, head.files, files)
            commit = self._write_commit(repo_id, head.id, files, message)
            pull = Pull(commit.id, base, message.title, message.author)
            self._write_repo(replace(repo, pulls={**repo.pulls, str(number): pull}))
        return number, commit

    # files on disk

    def _folder(self, repo_id: str) -> Path:
        owner, name = check_repo_id(repo_id)
        return self._repos / owner / name

    def _commit_path(self, repo_id: str, commit_id: str) -> Path:
        return self._folder(repo_id) / "commits" / f"{commit_id}.json"

    def _branch_head(self, repo: Repo, ref: str) -> Commit:
        name = ref.removeprefix("refs/heads/")
        if name not in repo.branches and not (ref.startswith("refs/pr/") and repo.target(ref)):
            raise RevisionMissing(f"{repo.id} has no branch {name}")
        return self.commit(repo, ref)

    def _read_commit_file(self, repo_id: str, commit_id: str) -> Commit:
        try:
            return Commit.read(commit_id, self._commit_path(repo_id, commit_id).read_bytes())
        except FileNotFoundError:
            raise Damaged(f"commit {commit_id} of {repo_id} is missing on disk") from None

    def _write_commit(self, repo_id: str, parent: str, files: Mapping[str, Blob], message: Message) -> Commit:
        check_tree(files)
        for path, blob in files.items():
            if not self.blobs.path(blob.sha256).is_file():
                raise Damaged(f"the content of {path} is missing on disk", hint="upload it again")
        commit, data = Commit.make(
            parent, files, title=message.title, message=message.text, author=message.author, date=now()
        )
        write_file(self._commit_path(repo_id, commit.id), data, scratch=self._scratch)
        return commit

    def _write_repo(self, repo: Repo) -> None:
        write_file(self._folder(repo.id) / "repo.json", repo.to_bytes(), scratch=self._scratch)

    def _refuse_lookalike(self, repo_id: str, *, but: str | None = None) -> None:
        owner = repo_id.partition("/")[0]
        for known in self.ids():
            if known == repo_id:
                raise AlreadyThere(f"repo {repo_id} exists")
            if known == but:
                continue
            other = known.partition("/")[0]
            if known.lower() == repo_id.lower() or (other != owner and other.lower() == owner.lower()):
                # the other one is not named: the caller may not be allowed to know of it
                raise Refused(f"repo id {repo_id!r} differs from one that exists only by case")

    def _drop_empty(self, folder: Path) -> None:
        if not any(folder.iterdir()):
            folder.rmdir()


def apply(commit: Commit, operations: Sequence[Operation]) -> dict[str, Blob]:
    """The files of a commit after the operations, in their order; dropping what is not there is EntryMissing."""
    files = dict(commit.files)
    for operation in operations:
        if isinstance(operation, Put):
            files[check_path(operation.path)] = operation.blob
            continue
        prefix = operation.path.rstrip("/") + "/"
        doomed = [path for path in files if path == operation.path or (operation.folder and path.startswith(prefix))]
        if not doomed:
            raise EntryMissing(f"A file with this name doesn't exist: {operation.path}", commit=commit.id)
        for path in doomed:
            del files[path]
    return files


def now() -> str:
    """This moment as a Hub writes it: ISO 8601, UTC, milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
