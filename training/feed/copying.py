"""Copies all objects of a channel into a folder, before the program starts."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from dyntrain.training.feed.channels import Channel
from dyntrain.training.feed.listing import listed
from dyntrain.training.feed.places import MANIFEST, ChannelError, S3Object, parsed
from dyntrain.training.feed.stream import ObjectStream

PARALLEL_COPIES = 8
READ_BYTES = 1024 * 1024
PROGRESS_SECONDS = 10.0  # between progress messages
PART = ".part"
_Mark = tuple[str, str, int, int]


def copy(
    s3: Any,
    channel: Channel,
    folder: Path,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Copy the channel's objects into `folder`.

    Files of an earlier run are kept if object and file have not changed. Raises ChannelError, and keeps complete files.
    """
    objects = listed(s3, channel.source)
    if not objects:
        raise ChannelError(f"channel {channel.name}: there is no object at {channel.source}")
    record = folder.with_name(f".{folder.name}.copied")
    copied = _recorded(record)
    missing_objects = {
        path: source for path, source in _places(channel, objects, folder) if _mark(path, source) not in copied
    }
    missing = sum(source.size for source in missing_objects.values())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _fits(channel, folder, missing)
        began = reported_at = clock()
        count = size = 0
        with record.open("a") as recorded, ThreadPoolExecutor(PARALLEL_COPIES, "copy") as pool:
            recorded.write("\n")  # ends a line that a kill may have cut off
            running = {pool.submit(_copied, s3, source, path): source for path, source in missing_objects.items()}
            try:
                for future in as_completed(running):
                    recorded.write(json.dumps(future.result()) + "\n")
                    recorded.flush()
                    count, size = count + 1, size + running[future].size
                    if clock() - reported_at > PROGRESS_SECONDS:
                        reported_at = clock()
                        say(
                            f"channel {channel.name}: {count} of {len(missing_objects)} objects, "
                            f"{_mb(size)} of {_mb(missing)}"
                        )
            finally:
                for future in running:
                    future.cancel()
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(channel, folder, missing) from error
        raise ChannelError(f"channel {channel.name}: {folder} cannot be written: {error.strerror}") from error
    say(f"channel {channel.name}: {len(objects)} objects in {folder}; {_mb(missing)} copied in {clock() - began:.0f} s")


def _places(channel: Channel, objects: list[S3Object], folder: Path) -> Iterator[tuple[Path, S3Object]]:
    """Each object's path in the folder: its key without the prefix's folder, or for a manifest the whole key.

    Raises ChannelError if a path would lie outside of the folder.
    """
    prefix = "" if channel.source.endswith(MANIFEST) else parsed(channel.source)[1]
    folder_prefix = prefix if prefix.endswith("/") else prefix.rpartition("/")[0] + "/" if "/" in prefix else ""
    if prefix and not prefix.endswith("/") and all(source.key.startswith(f"{prefix}/") for source in objects):
        folder_prefix = f"{prefix}/"
    for source in objects:
        if source.key.endswith("/"):
            continue  # the empty object with which the console represents a folder
        path = Path(os.path.normpath(folder / source.key[len(folder_prefix) :]))
        if folder not in path.parents:
            raise ChannelError(f"channel {channel.name}: {source} would lie outside of {folder}")
        yield path, source


def _mark(path: Path, source: S3Object) -> _Mark | None:
    """The entry that records the file as a copy of the object; None if there is no file."""
    if not path.is_file():
        return None
    state = path.stat()
    return str(path), source.etag, state.st_size, state.st_mtime_ns


def _recorded(record: Path) -> set[object]:
    marks: set[object] = set()
    for line in record.read_text().splitlines() if record.is_file() else ():
        with contextlib.suppress(ValueError, TypeError):  # the line was cut off by a kill
            marks.add(tuple(json.loads(line)))
    return marks


def _fits(channel: Channel, folder: Path, missing: int) -> None:
    if missing > shutil.disk_usage(folder).free:
        raise _full(channel, folder, missing)


def _full(channel: Channel, folder: Path, missing: int) -> ChannelError:
    free = shutil.disk_usage(folder).free
    return ChannelError(
        f"channel {channel.name}: {_mb(missing)} do not fit in {folder}, where {_mb(free)} are free; give a larger "
        "disk, or mode=pipe"
    )


def _copied(s3: Any, source: S3Object, path: Path) -> _Mark | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + PART)
    stream = ObjectStream(s3, source)
    try:
        with part.open("wb") as file:
            for start in range(0, source.size, READ_BYTES):
                file.write(stream.read(start, min(READ_BYTES, source.size - start)))
        part.rename(path)
        return _mark(path, source)
    finally:
        stream.close()
        if part.exists():
            part.unlink()


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
