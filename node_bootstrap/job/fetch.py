"""The prepare-data of a cluster whose code comes from S3.

The first node unpacks the archive on the shared volume, completely or not at all. Then each node runs the code's own
prepare-data.py, if there is one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

FOLDER = "code"  # below the volume
VARIABLE = "DYNTRAIN_CODE"  # s3://BUCKET/KEY
OWN = "prepare-data.py"
ORIGIN = ".dyntrain-code"  # in the folder: where its files come from
Download = Callable[[str, str, str], object]  # bucket, key, path


def fetch(source: str, volume: Path, download: Download) -> Path:
    """Unpack the code on the volume; returns its folder.

    Raises one of `bucket.AWS_ERRORS`, and CommandFailed, also if the volume already has other code.
    """
    from dyntrain.node_bootstrap.job.command import unpack

    folder = volume / FOLDER
    if folder.is_dir():
        return _check_origin(source, folder)
    bucket, _, key = source.removeprefix("s3://").partition("/")
    with tempfile.TemporaryDirectory(dir=volume, prefix=f".{FOLDER}-") as aside:
        archive, unpacked = Path(aside) / "archive", Path(aside) / FOLDER
        download(bucket, key, str(archive))
        unpack(archive, unpacked)
        (unpacked / ORIGIN).write_text(source)
        try:
            unpacked.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another node was first
                raise
    return _check_origin(source, folder)


def _check_origin(source: str, folder: Path) -> Path:
    """Return the folder if it has the code of `source`: other or older code must not be trained silently. Raises
    CommandFailed.
    """
    from dyntrain.node_bootstrap.job.command import CommandFailed

    origin = folder / ORIGIN
    present = origin.read_text() if origin.is_file() else "somebody"
    if present != source:
        raise CommandFailed(f"the volume has a folder {FOLDER} already, with the code of {present}; move it away")
    return folder


def main() -> int:
    """Fetch the code and run its prepare-data.py; returns the exit code."""
    # imported here: the node's program needs only the constants of this file
    from dyntrain.node_bootstrap.job.bucket import AWS_ERRORS, client
    from dyntrain.node_bootstrap.job.command import CommandFailed

    source = os.environ[VARIABLE]
    try:
        download = client("s3", os.environ["AWS_DEFAULT_REGION"]).download_file
        folder = fetch(source, Path(os.environ["EFS_MOUNT"]), download)
    except (CommandFailed, *AWS_ERRORS) as error:
        print(f"prepare-data: {source}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"prepare-data: the code of {source} is in {folder}", flush=True)  # noqa: T201
    if (folder / OWN).is_file():
        os.chdir(folder)
        os.execv(sys.executable, [sys.executable, OWN])  # noqa: S606  # its exit code is ours
    return 0


if __name__ == "__main__":
    sys.exit(main())
