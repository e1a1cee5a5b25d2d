"""Settings of the C library's allocator."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # malloc.h; see `man 3 mallopt`
MMAP_LARGEST = 4 * 1024 * 1024 * ctypes.sizeof(ctypes.c_long)  # glibc refuses more
PIECE = MMAP_LARGEST // 2
_LIBC = ctypes.CDLL(None)


def keep_freed_memory(at_most: int) -> None:
    """Make this process keep up to `at_most` bytes of freed memory for its next allocations.

    Otherwise the memory of a batch is returned to the kernel, and allocated again page by page for the next batch. Peak
    usage stays the same, but usage does not drop between the peaks. No effect unless the C library is glibc.
    """
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MMAP_LARGEST)
        mallopt(M_TRIM_THRESHOLD, at_most)


def share_freed_memory() -> None:
    """Share freed memory among all threads of this process. Call this before other threads exist."""
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def fill_memory(size: int) -> None:
    """Allocate `size` bytes once, for a process that keeps freed memory and shares it among its threads."""
    malloc, free = _LIBC.malloc, _LIBC.free
    malloc.restype, malloc.argtypes, free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    pieces = []
    for start in range(0, size, PIECE):
        length = min(PIECE, size - start)
        if not (piece := malloc(length)):
            break
        pieces.append(piece)
        ctypes.memset(piece, 0, length)  # other threads continue meanwhile
    for piece in pieces:
        free(piece)
