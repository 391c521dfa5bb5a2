"""How many requests one caller may send: a bucket of tokens each, refilled at a steady rate."""

import math
import threading
import time
from collections.abc import Callable

_MAX_BUCKETS = 10_000


class RateLimit:
    """At most `rate` requests a second for each caller, `burst` at once; a rate of 0 is no limit."""

    def __init__(self, rate: float = 0.0, burst: int = 200, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate = rate
        self.burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}  # caller -> tokens left, when that was

    def wait_seconds(self, caller: str, *, take: bool = True) -> int:
        """0 when the caller may go on, which counts as a request unless take=False; else in how many seconds it may."""
        if self.rate <= 0:
            return 0
        with self._lock:
            now = self._clock()
            left, since = self._buckets.get(caller, (float(self.burst), now))
            left = min(self.burst, left + (now - since) * self.rate)
            if left < 1:
                return max(1, math.ceil((1 - left) / self.rate))
            if len(self._buckets) >= _MAX_BUCKETS and caller not in self._buckets:
                self._forget(now)
            self._buckets[caller] = (left - take, now)
            return 0

    def _forget(self, now: float) -> None:
        """Drop the buckets that are full again; where none is, the oldest: memory has to stay bounded."""
        full = [key for key, (left, since) in self._buckets.items() if left + (now - since) * self.rate >= self.burst]
        for key in full or sorted(self._buckets, key=lambda key: self._buckets[key][1])[: _MAX_BUCKETS // 10]:
            del self._buckets[key]
