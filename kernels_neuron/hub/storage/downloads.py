"""How often each variant was fetched: counted in memory, written to disk every few seconds and at the end."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from .disk import write_file

_EVERY_SECONDS = 5.0


class Downloads:
    """Counts by (repo id, variant). A crash loses what was counted since the last write, and nothing else."""

    def __init__(self, file: Path, scratch: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._scratch = scratch
        self._clock = clock
        self._lock = threading.Lock()
        self._written = clock()
        self._new: Counter[tuple[str, str]] = Counter()

    def add(self, repo_id: str, variant: str) -> None:
        """Count one fetch."""
        with self._lock:
            self._new[repo_id, variant] += 1
            if self._clock() - self._written >= _EVERY_SECONDS:
                self._write()

    def flush(self) -> None:
        """Write what was counted."""
        with self._lock:
            self._write()

    def all(self) -> Counter[tuple[str, str]]:
        """Every count, those not yet written included."""
        with self._lock:
            return self._read() + self._new

    def of(self, repo_id: str) -> dict[str, int]:
        """The counts of one repo, by variant."""
        return {variant: count for (repo, variant), count in sorted(self.all().items()) if repo == repo_id}

    def _write(self) -> None:
        self._written = self._clock()
        if not self._new:
            return
        rows = [[repo, variant, count] for (repo, variant), count in sorted((self._read() + self._new).items())]
        write_file(self._file, json.dumps(rows, ensure_ascii=False).encode(), scratch=self._scratch)
        self._new.clear()

    def _read(self) -> Counter[tuple[str, str]]:
        try:
            return Counter({(repo, variant): count for repo, variant, count in json.loads(self._file.read_bytes())})
        except (FileNotFoundError, ValueError, TypeError):
            return Counter()  # counts are no reason to refuse anything
