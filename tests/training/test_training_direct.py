"""Commits are written past the page cache: every byte must be there all the same, on any file system and from any
memory.
"""

from __future__ import annotations

import mmap
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from dyntrain.training.worker.state.direct import ALIGNMENT, CHUNK_BYTES, write_synced

TRAILER = b"checksum"


@pytest.fixture(params=[None, "/dev/shm"], ids=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Also on a file system in memory, some of which have no way around the cache."""
    if request.param is None:
        yield tmp_path
    else:
        with tempfile.TemporaryDirectory(dir=request.param) as name:
            yield Path(name)


def pattern(size: int, start: int) -> memoryview:
    """Memory that begins `start` bytes behind a page."""
    memory = mmap.mmap(-1, start + size)
    memory[start:] = bytes(number % 251 for number in range(min(size, 10_000))).ljust(size, b"z")
    return memoryview(memory)[start:]


@pytest.mark.parametrize("start", [0, 24])
@pytest.mark.parametrize(
    "size", [1, ALIGNMENT, ALIGNMENT + 1, 3 * ALIGNMENT - 1, CHUNK_BYTES + ALIGNMENT, 2 * CHUNK_BYTES + 77]
)
def test_what_is_written_is_what_is_read(folder: Path, size: int, start: int) -> None:
    block, path = pattern(size, start), folder / "file"
    path.write_bytes(b"old" * size)
    write_synced(path, block, TRAILER)
    assert path.read_bytes() == bytes(block) + TRAILER


def test_a_disk_that_is_full_is_an_error(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 * CHUNK_BYTES, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_synced(tmp_path / "file", pattern(3 * CHUNK_BYTES, 0), TRAILER)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
