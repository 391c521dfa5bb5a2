"""The C allocator's settings: temporaries of tile size are reused instead of being returned to the system each time."""

import ctypes
import functools

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
