"""Settings of the C library's allocator."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # malloc.h; `man 3 mallopt` says what they do
MMAP_LARGEST = 4 * 1024 * 1024 * ctypes.sizeof(ctypes.c_long)  # more is refused
PIECE = MMAP_LARGEST // 2
_LIBC = ctypes.CDLL(None)


def keep_freed_memory(at_most: int) -> None:
    """Make this process keep up to `at_most` bytes of freed memory for its next allocations.

    Otherwise a batch's memory goes back to the kernel, which returns it page by page for the next batch. Peak usage
    stays the same; it just does not drop between the peaks. No effect unless the C library is glibc.
    """
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MMAP_LARGEST)
        mallopt(M_TRIM_THRESHOLD, at_most)


def share_freed_memory() -> None:
    """Among this process' threads, each of which else has memory of its own. Before it has any."""
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def fill_memory(size: int) -> None:
    """Have the kernel hand out so many bytes now, to a process that keeps what it frees and shares it."""
    malloc, free = _LIBC.malloc, _LIBC.free
    malloc.restype, malloc.argtypes, free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    pieces = []
    for at in range(0, size, PIECE):
        length = min(PIECE, size - at)
        if not (piece := malloc(length)):
            break
        pieces.append(piece)
        ctypes.memset(piece, 0, length)  # other threads go on meanwhile
    for piece in pieces:
        free(piece)
