"""Sets options of the C library's memory allocator."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # malloc.h; see `man 3 mallopt`
MAX_MMAP_THRESHOLD = 4 * 1024 * 1024 * ctypes.sizeof(ctypes.c_long)  # glibc refuses more
PIECE_BYTES = MAX_MMAP_THRESHOLD // 2  # largest single allocation of `fill_memory`
_LIBC = ctypes.CDLL(None)


def keep_freed_memory(max_bytes: int) -> None:
    """Make this process keep up to `max_bytes` bytes of freed memory for its next allocations.

    By default, glibc returns the memory of a batch to the kernel, and allocates the memory again page by page for the
    next batch. Keeping freed memory does not raise the peak of the memory usage, but the usage does not drop between
    peaks. The call has no effect unless the C library is glibc.
    """
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MAX_MMAP_THRESHOLD)
        mallopt(M_TRIM_THRESHOLD, max_bytes)


def share_freed_memory() -> None:
    """Share freed memory among all threads of this process.

    Call `share_freed_memory` before other threads are started.
    """
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def fill_memory(size: int) -> None:
    """Allocate, write and free `size` bytes, so that a process that keeps freed memory has this memory ready."""
    malloc, free = _LIBC.malloc, _LIBC.free
    malloc.restype, malloc.argtypes, free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    piece_addresses = []
    for piece_start in range(0, size, PIECE_BYTES):
        piece_bytes = min(PIECE_BYTES, size - piece_start)
        if not (piece_address := malloc(piece_bytes)):
            break
        piece_addresses.append(piece_address)
        ctypes.memset(piece_address, 0, piece_bytes)  # other threads continue meanwhile
    for piece_address in piece_addresses:
        free(piece_address)
