"""gc: removes contents that no commit of any repo names."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .damage import read_commits
from .disk import locked
from .faults import Damaged
from .records import Commit

if TYPE_CHECKING:
    from ..store import Store

# an upload writes its contents before its commit: what is younger than this may be about to be named
GRACE_SECONDS = 3600.0


@dataclass(frozen=True)
class Collected:
    """What gc removed, or would remove: contents and their bytes; and how many it kept because they are young."""

    blobs: int
    size: int
    young: int


def collect(store: "Store", *, grace_seconds: float = GRACE_SECONDS, dry_run: bool = False) -> Collected:
    """Remove every blob that is named by no commit and older than the grace.

    Commits stay, also those no branch leads to any more: a lock file may name them. Safe beside a running server: it
    holds the store's lock, and a commit is refused when a content of it is not there. Raises Damaged, having removed
    nothing, where a commit cannot be read, because nobody knows what that one names.
    """
    blobs = size = young = 0
    with locked(store.lock):
        named = _named(store)
        oldest = time.time() - grace_seconds
        for path in store.blobs:
            if path.name in named:
                continue
            stat = path.stat()
            if stat.st_mtime > oldest:
                young += 1
                continue
            blobs, size = blobs + 1, size + stat.st_size
            if not dry_run:
                path.unlink()
    return Collected(blobs, size, young)


def _named(store: "Store") -> set[str]:
    named = set()
    for repo_id in store.ids():
        for commit_id, commit in read_commits(store.root / "repos" / repo_id / "commits").items():
            if not isinstance(commit, Commit):
                raise Damaged(
                    f"{repo_id} commit {commit_id}: {commit}", hint="see registry verify; nothing was removed"
                )
            named |= {blob.sha256 for blob in commit.files.values()}
    return named
