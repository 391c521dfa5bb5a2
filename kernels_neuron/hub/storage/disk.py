"""Files that are there whole or not at all, and blobs named by their content."""

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Blob:
    """The content of one file: its SHA-256, the id git gives it, its size in bytes."""

    sha256: str
    oid: str
    size: int


def blob_of(data: bytes) -> Blob:
    """The ids of some bytes."""
    oid = hashlib.sha1(b"blob %d\0" % len(data), usedforsecurity=False)
    oid.update(data)
    return Blob(hashlib.sha256(data).hexdigest(), oid.hexdigest(), len(data))


def write_file(path: Path, data: bytes, *, scratch: Path) -> None:
    """Put `data` at `path` in one step: fsynced in `scratch` (same file system), renamed, folder fsynced."""
    _place(path, data, scratch)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder and what is missing above it, each name fsynced."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the one lock kept at `path`, against threads and other processes alike."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


class Blobs:
    """Immutable contents under `folder`, sharded by the first two digits of their SHA-256."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._folder = folder
        self._scratch = scratch

    def path(self, sha256: str) -> Path:
        """Where a blob lies, or would lie."""
        return self._folder / sha256[:2] / sha256

    def __iter__(self) -> Iterator[Path]:
        return (path for shard in sorted(self._folder.iterdir()) if shard.is_dir() for path in sorted(shard.iterdir()))

    def size(self) -> int:
        """The bytes of all contents."""
        return sum(path.stat().st_size for path in self)

    @contextmanager
    def batch(self) -> Iterator["BlobBatch"]:
        """Several blobs, durable together when the block ends."""
        batch = BlobBatch(self, self._scratch)
        yield batch
        batch.sync()


class BlobBatch:
    """Blobs being added. A content that is there already is not written again."""

    def __init__(self, blobs: Blobs, scratch: Path) -> None:
        self._blobs = blobs
        self._scratch = scratch
        self._touched: set[Path] = set()

    def put(self, data: bytes) -> Blob:
        """Add one content."""
        blob = blob_of(data)
        path = self._blobs.path(blob.sha256)
        # a blob of the wrong size was damaged on disk: write it anew
        if path.is_file() and path.stat().st_size == blob.size:
            os.utime(path)  # a collector that spares young blobs must see that this one is wanted again
            return blob
        make_folder(path.parent)
        _place(path, data, self._scratch)
        self._touched.add(path.parent)
        return blob

    def sync(self) -> None:
        """Make the names of the new blobs survive a power cut."""
        for folder in self._touched:
            sync_folder(folder)
        self._touched.clear()


def _place(path: Path, data: bytes, scratch: Path) -> None:
    part = scratch / f"{secrets.token_hex(8)}.part"
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
