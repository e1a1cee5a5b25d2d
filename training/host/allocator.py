"""How the C library deals with memory that is freed."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h; `man 3 mallopt` says what they do
MMAP_LARGEST = 4 * 1024 * 1024 * ctypes.sizeof(ctypes.c_long)  # more is refused


def keep_freed_memory(at_most: int) -> None:
    """This process keeps what it frees, up to `at_most` bytes, for what it allocates next. Else the kernel is given
    back what a batch was made of, and hands it out again page by page for the next one. The process needs no more at
    its peak; it has that also between its peaks. Nothing where the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MMAP_LARGEST)
        mallopt(M_TRIM_THRESHOLD, at_most)
