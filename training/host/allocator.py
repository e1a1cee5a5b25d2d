"""Settings of the C library's allocator."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # malloc.h; see `man 3 mallopt`
MMAP_LARGEST = 4 * 1024 * 1024 * ctypes.sizeof(ctypes.c_long)  # glibc refuses more
PIECE_BYTES = MMAP_LARGEST // 2  # largest single allocation of `fill_memory`
_LIBC = ctypes.CDLL(None)


def keep_freed_memory(max_bytes: int) -> None:
    """Make this process keep up to `max_bytes` bytes of freed memory for its next allocations.

    Without this, the memory of a batch is returned to the kernel, and allocated again page by page for the next batch.
    The peak of the memory usage stays the same, but the usage does not drop between peaks. Has no effect unless the C
    library is glibc.
    """
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, MMAP_LARGEST)
        mallopt(M_TRIM_THRESHOLD, max_bytes)


def share_freed_memory() -> None:
    """Share freed memory among all threads of this process. Call this before other threads exist."""
    mallopt = getattr(_LIBC, "mallopt", None)
    if mallopt is not None:
        mallopt(M_ARENA_MAX, 1)


def fill_memory(size: int) -> None:
    """Allocate `size` bytes once, for a process that keeps freed memory and shares it among its threads."""
    malloc, free = _LIBC.malloc, _LIBC.free
    malloc.restype, malloc.argtypes, free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
    allocated_pieces = []
    for piece_start in range(0, size, PIECE_BYTES):
        piece_bytes = min(PIECE_BYTES, size - piece_start)
        if not (piece_address := malloc(piece_bytes)):
            break
        allocated_pieces.append(piece_address)
        ctypes.memset(piece_address, 0, piece_bytes)  # other threads continue meanwhile
    for piece_address in allocated_pieces:
        free(piece_address)
