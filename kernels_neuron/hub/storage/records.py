"""What a registry remembers of a repo: commits that never change, and a small record of refs, swapped whole."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from .disk import Blob
from .faults import Damaged


@dataclass(frozen=True)
class Commit:
    """A whole tree (path -> content) with its parent. The id is the SHA-1 of the bytes on disk, so damage shows."""

    id: str
    parent: str | None
    title: str
    message: str
    author: str
    date: str
    files: Mapping[str, Blob]

    @staticmethod
    def make(
        parent: str | None, files: Mapping[str, Blob], *, title: str, message: str = "", author: str, date: str
    ) -> tuple["Commit", bytes]:
        """A new commit, and the bytes that keep it."""
        rows = [[path, files[path].sha256, files[path].oid, files[path].size] for path in sorted(files)]
        record = {"parent": parent, "title": title, "message": message, "author": author, "date": date, "files": rows}
        data = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()
        return Commit(_sha1(data), parent, title, message, author, date, dict(files)), data

    @staticmethod
    def read(commit_id: str, data: bytes) -> "Commit":
        """The commit that `data` keeps; Damaged where they are not the bytes that were named `commit_id`."""
        if _sha1(data) != commit_id:
            raise Damaged(f"commit {commit_id} does not have the bytes it was written with")
        record = json.loads(data)
        files = {path: Blob(sha256, oid, size) for path, sha256, oid, size in record["files"]}
        return Commit(commit_id, **{**record, "files": files})


@dataclass(frozen=True)
class Pull:
    """A commit kept at refs/pr/<n> beside the branch it was made for."""

    commit: str
    base: str
    title: str
    author: str


@dataclass(frozen=True)
class Repo:
    """A repo's refs at one moment. Two of equal content are the same state; a change replaces the whole record."""

    id: str
    private: bool
    created: str
    branches: Mapping[str, str]
    tags: Mapping[str, str]
    pulls: Mapping[str, Pull]

    @property
    def owner(self) -> str:
        """The namespace part of the id."""
        return self.id.partition("/")[0]

    def to_bytes(self) -> bytes:
        """What is kept on disk; the id is the folder's name and is not repeated inside."""
        record = {key: value for key, value in asdict(self).items() if key != "id"}
        return json.dumps(record, ensure_ascii=False, indent=1).encode()

    @staticmethod
    def read(repo_id: str, data: bytes) -> "Repo":
        """The record that `data` keeps."""
        try:
            record: dict[str, Any] = json.loads(data)
            pulls = {number: Pull(**pull) for number, pull in record.pop("pulls").items()}
            return Repo(repo_id, **record, pulls=pulls)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Damaged(f"the record of {repo_id} cannot be read: {error}") from error

    def target(self, revision: str) -> str | None:
        """The commit of a branch, else of a tag, or of refs/heads/x, refs/tags/x, refs/pr/n; None if there is none."""
        if revision.startswith("refs/heads/"):
            return self.branches.get(revision.removeprefix("refs/heads/"))
        if revision.startswith("refs/tags/"):
            return self.tags.get(revision.removeprefix("refs/tags/"))
        if revision.startswith("refs/pr/"):
            pull = self.pulls.get(revision.removeprefix("refs/pr/"))
            return pull.commit if pull else None
        return self.branches.get(revision) or self.tags.get(revision)

    def moved(self, ref: str, commit: str) -> "Repo":
        """This repo with a branch or a pull request pointing at `commit`."""
        if ref.startswith("refs/pr/"):
            number = ref.removeprefix("refs/pr/")
            return replace(self, pulls={**self.pulls, number: replace(self.pulls[number], commit=commit)})
        return replace(self, branches={**self.branches, ref.removeprefix("refs/heads/"): commit})


@dataclass(frozen=True)
class Entry:
    """One line of a tree: a file with its content, or a folder with the id git gives such a tree (blob is None)."""

    path: str
    oid: str
    blob: Blob | None


def list_tree(files: Mapping[str, Blob], folder: str, *, recursive: bool) -> list[Entry] | None:
    """What lies in a folder ("" is the root), in order of path; None where there is no such folder."""
    root: dict[str, Any] = {}
    for path, blob in files.items():
        *parents, name = path.split("/")
        node = root
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = blob
    for part in folder.split("/") if folder else []:
        found = root.get(part)
        if not isinstance(found, dict):
            return None
        root = found
    entries: list[Entry] = []
    _hash_tree(root, f"{folder}/" if folder else "", entries, recursive)
    return sorted(entries, key=lambda entry: entry.path)


def _hash_tree(node: Mapping[str, Any], prefix: str, entries: list[Entry] | None, recursive: bool) -> str:
    lines = []
    for name, child in node.items():
        if isinstance(child, Blob):
            oid, mode, sort_key = child.oid, b"100644", name.encode()
        else:
            oid = _hash_tree(child, f"{prefix}{name}/", entries if recursive else None, recursive)
            mode, sort_key = b"40000", name.encode() + b"/"  # git sorts a folder as if its name ended in a slash
        if entries is not None:
            entries.append(Entry(prefix + name, oid, child if isinstance(child, Blob) else None))
        lines.append((sort_key, mode + b" " + name.encode() + b"\0" + bytes.fromhex(oid)))
    body = b"".join(line for _, line in sorted(lines))
    return _sha1(b"tree %d\0" % len(body) + body)


def _sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()
