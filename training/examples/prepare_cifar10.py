"""Downloads CIFAR-10 from its authors' site and writes the images as RecordIO files, for `prepare-data.py`.

Every node of a cluster runs this program: the first node creates the two files, and all other nodes find the files. A
file gets its name only once it is complete, even if two nodes write the same file at the same time.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import IO

from dyntrain.training.examples.cifar10_data import (
    TRAINING,
    VALIDATION,
    CifarError,
    default_directory,
    parse_binary,
)
from dyntrain.training.examples.cifar10_records import write_records

ARCHIVE_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
# From github.com/JuliaML/MLDatasets.jl (src/datasets/vision/cifar10.jl), and not verified: the authors' page
# https://www.cs.toronto.edu/~kriz/cifar.html has only the MD5.
ARCHIVE_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
BATCHES_OF_RECORD_FILE = {
    VALIDATION: ["cifar-10-batches-bin/test_batch.bin"],
    TRAINING: [f"cifar-10-batches-bin/data_batch_{number}.bin" for number in range(1, 6)],
}
MAX_BATCH_BYTES = 64 << 20  # limit for one file of the archive; the real files have 30 MB
SILENCE_SECONDS = 30.0  # without data from the network
CHUNK_BYTES = 1 << 20  # of the download that are read at once


def prepare_files(directory: Path, url: str, sha256: str, seconds: float) -> bool:
    """Create the two RecordIO files. Returns False if both files already exist. Raises CifarError."""
    if all((directory / record_name).is_file() for record_name in BATCHES_OF_RECORD_FILE):
        return False
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as archive:
            _download(url, sha256, archive, time.monotonic() + seconds)
            with tarfile.open(fileobj=archive, mode="r:gz") as archive_members:
                for record_name, batch_names in BATCHES_OF_RECORD_FILE.items():
                    images, labels = parse_binary(
                        [(batch_name, _read_member(archive_members, batch_name)) for batch_name in batch_names]
                    )
                    write_records(directory / record_name, images, labels)
    except (OSError, EOFError, tarfile.TarError) as error:
        raise CifarError(f"{directory}: {error}") from error
    return True


def _download(url: str, sha256: str, archive: IO[bytes], deadline: float) -> None:
    """Download the archive of CIFAR-10. Raises CifarError, at the latest `SILENCE_SECONDS` after `deadline`."""
    if not url.startswith(("https://", "http://", "file://")):
        raise CifarError(f"{url}: must begin with https://, http:// or file://")
    digest = hashlib.sha256()
    try:
        with urllib.request.urlopen(url, timeout=SILENCE_SECONDS) as response:  # noqa: S310  # the URL's kind is checked above
            while chunk := response.read1(CHUNK_BYTES):
                if time.monotonic() > deadline:
                    raise TimeoutError("the download took longer than --seconds")
                digest.update(chunk)
                archive.write(chunk)
    except OSError as error:
        raise CifarError(
            f"{url} could not be fetched: {error}. Without a network, copy the archive to this machine and "
            "give --url file:///PATH"
        ) from error
    if digest.hexdigest() != sha256:
        raise CifarError(
            f"{url} is damaged, or is another file than expected: its SHA-256 is {digest.hexdigest()}, not {sha256}"
        )
    archive.seek(0)


def _read_member(members: tarfile.TarFile, name: str) -> bytes:
    try:
        member_file = members.extractfile(name)
    except KeyError:
        member_file = None
    if member_file is None:
        raise CifarError(f"the archive has no file {name}")
    with member_file:
        return member_file.read(MAX_BATCH_BYTES)


def main(argv: list[str] | None = None) -> int:
    """Create the two RecordIO files.

    Returns 0 if the files now exist. After an error, this function prints the reason and returns 1.
    """
    parser = argparse.ArgumentParser(prog="prepare-data.py", description="CIFAR-10 as RecordIO, for train_cifar10.py.")
    directory = default_directory(os.environ)
    parser.add_argument("--directory", type=Path, default=directory, help="folder for the files; default: %(default)s")
    parser.add_argument("--url", default=ARCHIVE_URL, help="URL of cifar-10-binary.tar.gz; default: %(default)s")
    parser.add_argument("--sha256", default=ARCHIVE_SHA256, help="SHA-256 of the archive")
    parser.add_argument("--seconds", type=float, default=900.0, help="limit for the download; default: %(default).0f")
    args = parser.parse_args(argv)
    try:
        files_created = prepare_files(args.directory, args.url, args.sha256, args.seconds)
    except CifarError as error:
        print(f"prepare-data: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"{args.directory}: CIFAR-10 {'was created' if files_created else 'existed already'}")  # noqa: T201
    return 0
