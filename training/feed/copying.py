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
from dyntrain.training.feed.listing import list_objects
from dyntrain.training.feed.places import MANIFEST, ChannelError, S3Object, bucket_and_prefix
from dyntrain.training.feed.stream import ObjectStream

PARALLEL_COPIES = 8
READ_BYTES = 1024 * 1024  # read from an object at once
PROGRESS_SECONDS = 10.0  # between progress messages
PARTIAL_SUFFIX = ".part"  # of a file that is being copied
_CopyRecord = tuple[str, str, int, int]  # path, ETag, size, time of the last change


def copy_channel(
    s3: Any,
    channel: Channel,
    folder: Path,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Copy the channel's objects into `folder`.

    A file that an earlier run copied is not copied again, unless the file or its S3 object has changed. Raises
    ChannelError if an object cannot be copied. After an error, files that were copied completely remain.
    """
    objects = list_objects(s3, channel.source)
    if not objects:
        raise ChannelError(f"channel {channel.name}: there is no object at {channel.source}")
    record_file = folder.with_name(f".{folder.name}.copied")
    recorded_copies = _read_copy_records(record_file)
    missing_objects = {
        path: source
        for path, source in _object_paths(channel, objects, folder)
        if _copy_record(path, source) not in recorded_copies
    }
    missing_bytes = sum(source.size for source in missing_objects.values())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _check_free_space(channel, folder, missing_bytes)
        began_at = reported_at = clock()
        copied_count = copied_bytes = 0
        with record_file.open("a") as record_writer, ThreadPoolExecutor(PARALLEL_COPIES, "copy") as copy_pool:
            record_writer.write("\n")  # ends a line that a kill may have cut off
            running_copies = {
                copy_pool.submit(_copy_object, s3, source, path): source for path, source in missing_objects.items()
            }
            try:
                for future in as_completed(running_copies):
                    record_writer.write(json.dumps(future.result()) + "\n")
                    record_writer.flush()
                    copied_count, copied_bytes = copied_count + 1, copied_bytes + running_copies[future].size
                    if clock() - reported_at > PROGRESS_SECONDS:
                        reported_at = clock()
                        say(
                            f"channel {channel.name}: {copied_count} of {len(missing_objects)} objects, "
                            f"{_megabytes(copied_bytes)} of {_megabytes(missing_bytes)}"
                        )
            finally:
                for future in running_copies:
                    future.cancel()
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _disk_full_error(channel, folder, missing_bytes) from error
        raise ChannelError(f"channel {channel.name}: {folder} cannot be written: {error.strerror}") from error
    say(
        f"channel {channel.name}: {len(objects)} objects in {folder}; {_megabytes(missing_bytes)} copied in "
        f"{clock() - began_at:.0f} s"
    )


def _object_paths(channel: Channel, objects: list[S3Object], folder: Path) -> Iterator[tuple[Path, S3Object]]:
    """Yield each object's path in `folder`, and the object.

    For a manifest, an object's path in the folder is its whole key. For a prefix, the part of the prefix up to its last
    "/" is removed from the key.

    Raises ChannelError if a path would be outside of `folder`.
    """
    prefix = "" if channel.source.endswith(MANIFEST) else bucket_and_prefix(channel.source)[1]
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


def _copy_record(path: Path, source: S3Object) -> _CopyRecord | None:
    """Return the entry for this file and object in the list of copied files, or None if the file does not exist."""
    if not path.is_file():
        return None
    file_state = path.stat()
    return str(path), source.etag, file_state.st_size, file_state.st_mtime_ns


def _read_copy_records(record_file: Path) -> set[object]:
    copy_records: set[object] = set()
    for line in record_file.read_text().splitlines() if record_file.is_file() else ():
        with contextlib.suppress(ValueError, TypeError):  # the line was cut off by a kill
            copy_records.add(tuple(json.loads(line)))
    return copy_records


def _check_free_space(channel: Channel, folder: Path, missing_bytes: int) -> None:
    if missing_bytes > shutil.disk_usage(folder).free:
        raise _disk_full_error(channel, folder, missing_bytes)


def _disk_full_error(channel: Channel, folder: Path, missing_bytes: int) -> ChannelError:
    free_bytes = shutil.disk_usage(folder).free
    return ChannelError(
        f"channel {channel.name}: {_megabytes(missing_bytes)} do not fit in {folder}, where "
        f"{_megabytes(free_bytes)} are free; give a larger "
        "disk, or mode=pipe"
    )


def _copy_object(s3: Any, source: S3Object, path: Path) -> _CopyRecord | None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial_file = path.with_name(path.name + PARTIAL_SUFFIX)
    stream = ObjectStream(s3, source)
    try:
        with partial_file.open("wb") as file:
            for offset in range(0, source.size, READ_BYTES):
                file.write(stream.read(offset, min(READ_BYTES, source.size - offset)))
        partial_file.rename(path)
        return _copy_record(path, source)
    finally:
        stream.close()
        if partial_file.exists():
            partial_file.unlink()


def _megabytes(byte_count: int) -> str:
    return f"{byte_count / 1e6:.1f} MB"
