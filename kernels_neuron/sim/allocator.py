"""Settings of the allocators below a run: C's reuses temporaries of tile size, Python's looks for cycles less often."""

import ctypes
import functools
import gc
from collections.abc import Iterator
from contextlib import contextmanager

# glibc's <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEEP_BYTES = 512 << 20
_LARGEST_KEPT_BYTES = 32 << 20  # the most glibc allows


@functools.cache
def keep_freed_pages() -> bool:
    """Tell glibc to keep up to 512 MiB of freed memory, once a process; answers whether this C library understood.

    A tile of 256 KiB lies above the default threshold, so without this every temporary costs 64 page faults, about as
    long as the arithmetic on it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # musl, macOS, Windows
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES) and mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES))


_ALLOCATIONS = 20_000  # what about 2,000 instructions leave in a trace


@contextmanager
def fewer_collections() -> Iterator[None]:
    """While open, Python looks for cycles every 20,000 new objects: a trace has none, and walking it takes long.

    Not never: a kernel whose closures hold each other would keep all its tiles until the end.
    """
    before = gc.get_threshold()
    if not 0 < before[0] < _ALLOCATIONS:
        yield
        return
    gc.set_threshold(_ALLOCATIONS, *before[1:])
    # what is there already, torch's modules for example, is not walked again and again either
    freezes = gc.get_freeze_count() == 0
    if freezes:
        gc.freeze()
    try:
        yield
    finally:
        if freezes:
            gc.unfreeze()
        gc.set_threshold(*before)
