"""Settings of the C library's allocator."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h; `man 3 mallopt` says what they do
MMAP_LARGEST = 4 * 1024 * 1024 * ctypes.sizeof(ctypes.c_long)  # more is refused


def keep_freed_memory(at_most: int) -> None:
    """Make this process keep up to `at_most` bytes of freed memory for its next allocations.

    Otherwise a batch's memory goes back to the kernel, which returns it page by page for the next batch. Peak usage
    stays the same; it just does not drop between the peaks. No effect unless the C library is glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MMAP_LARGEST)
        mallopt(M_TRIM_THRESHOLD, at_most)
