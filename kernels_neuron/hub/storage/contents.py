"""What a registry holds, release by release."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .records import Commit

if TYPE_CHECKING:
    from ..store import Store


@dataclass(frozen=True)
class Holding:
    """One branch of one repo that holds built variants."""

    repo_id: str
    branch: str
    commit: str
    variants: tuple[str, ...]
    files: int
    size: int
    date: str
    private: bool


def holdings(store: "Store") -> Iterator[Holding]:
    """Every branch with a build/ folder, in order of repo and branch; a repo without one comes once, as main."""
    for repo_id in store.ids():
        repo = store.repo(repo_id)
        commits = {name: store.commit(repo, f"refs/heads/{name}") for name in repo.branches}
        built = [name for name in sorted(commits, key=_by_number) if _variants(commits[name])]
        for name in built or ["main"]:
            commit = commits[name]
            size = sum(blob.size for blob in commit.files.values())
            about = (len(commit.files), size, commit.date, repo.private)
            yield Holding(repo_id, name, commit.id, _variants(commit), *about)


def _variants(commit: Commit) -> tuple[str, ...]:
    parts = (path.split("/") for path in commit.files)
    return tuple(sorted({part[1] for part in parts if part[0] == "build" and len(part) > 2}))


def _by_number(branch: str) -> tuple[int, str]:
    return (int(branch[1:]), branch) if branch[:1] == "v" and branch[1:].isdecimal() else (-1, branch)
