"""The prepare-data of a cluster whose code comes from S3.

The first node unpacks the archive on the shared volume, completely or not at all. Then each node runs the code's own
prepare-data.py, if it exists.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

FOLDER = "code"  # below the volume
VARIABLE = "DYNTRAIN_CODE"  # s3://BUCKET/KEY
PREPARE_SCRIPT = "prepare-data.py"
ORIGIN = ".dyntrain-code"  # file in the folder that names the source of the code
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
    with tempfile.TemporaryDirectory(dir=volume, prefix=f".{FOLDER}-") as temporary_folder:
        archive, unpacked = Path(temporary_folder) / "archive", Path(temporary_folder) / FOLDER
        download(bucket, key, str(archive))
        unpack(archive, unpacked)
        (unpacked / ORIGIN).write_text(source)
        try:
            unpacked.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another node was faster
                raise
    return _check_origin(source, folder)


def _check_origin(source: str, folder: Path) -> Path:
    """Return the folder if it has the code of `source`. Raises CommandFailed for other or older code."""
    from dyntrain.node_bootstrap.job.command import CommandFailed

    origin = folder / ORIGIN
    existing_source = origin.read_text() if origin.is_file() else "an unknown source"
    if existing_source != source:
        raise CommandFailed(
            f"the volume has a folder {FOLDER} already, with the code of {existing_source}; move it away"
        )
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
    if (folder / PREPARE_SCRIPT).is_file():
        os.chdir(folder)
        os.execv(sys.executable, [sys.executable, PREPARE_SCRIPT])  # noqa: S606  # its exit code becomes this program's
    return 0


if __name__ == "__main__":
    sys.exit(main())
