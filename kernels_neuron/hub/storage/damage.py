"""Re-reads and re-hashes everything a registry keeps, and names what is not as it was written."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from .disk import Blob, Blobs, blob_of
from .faults import Damaged
from .records import Commit, Repo

if TYPE_CHECKING:
    from ..store import Store


def find_damage(store: "Store") -> list[str]:
    """One line for each thing that is damaged or missing; empty is the proof that all is whole."""
    broken = dict(_broken_blobs(store.blobs))
    lines = [line for repo_id in store.ids() for line in _repo_damage(store, repo_id, broken)]
    named = {sha256 for sha256 in broken if any(sha256 in line for line in lines)}
    return lines + [f"blob {sha256}: {problem}" for sha256, problem in broken.items() if sha256 not in named]


def _broken_blobs(blobs: Blobs) -> Iterator[tuple[str, str]]:
    for path in blobs:
        if blob_of(path.read_bytes()).sha256 != path.name:
            yield path.name, "its bytes have changed"


def _repo_damage(store: "Store", repo_id: str, broken: Mapping[str, str]) -> Iterator[str]:
    try:
        repo = store.repo(repo_id)
    except Damaged as error:
        yield f"{repo_id}: {error}"
        return
    commits = read_commits(store.root / "repos" / repo_id / "commits")
    for ref, target in _refs(repo):
        if target not in commits:
            yield f"{repo_id} {ref}: commit {target} is missing"
    seen = set()
    for commit_id, commit in commits.items():
        if isinstance(commit, str):
            yield f"{repo_id} commit {commit_id}: {commit}"
            continue
        if commit.parent is not None and commit.parent not in commits:
            yield f"{repo_id} commit {commit_id}: its parent {commit.parent} is missing"
        for path, blob in commit.files.items():
            if (path, blob) not in seen:
                seen.add((path, blob))
                yield from _file_damage(store, f"{repo_id} {path}", blob, broken)


def _file_damage(store: "Store", where: str, blob: Blob, broken: Mapping[str, str]) -> Iterator[str]:
    if blob.sha256 in broken:
        yield f"{where}: blob {blob.sha256}: {broken[blob.sha256]}"
    elif not store.blobs.path(blob.sha256).is_file():
        yield f"{where}: blob {blob.sha256} is missing"


def read_commits(folder: Path) -> dict[str, Commit | str]:
    """Every commit in a repo's folder by its id; in words what is wrong with one that cannot be read."""
    found: dict[str, Commit | str] = {}
    for path in sorted(folder.glob("*.json")):
        try:
            found[path.stem] = Commit.read(path.stem, path.read_bytes())
        except (Damaged, json.JSONDecodeError):
            found[path.stem] = "its bytes have changed"
    return found


def _refs(repo: Repo) -> Iterator[tuple[str, str]]:
    yield from repo.branches.items()
    yield from ((f"tag {name}", target) for name, target in repo.tags.items())
    yield from ((f"refs/pr/{number}", pull.commit) for number, pull in repo.pulls.items())
