"""The prepare-data script of a cluster whose code is in S3: downloads the code to the shared volume.

The first node unpacks the archive on the shared volume, completely or not at all. When the code is unpacked, each node
runs the script prepare-data.py of the code, if there is one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

CODE_FOLDER = "code"  # folder on the shared volume
CODE_VARIABLE = "DYNTRAIN_CODE"  # environment variable with s3://BUCKET/KEY of the code
PREPARE_SCRIPT = "prepare-data.py"
SOURCE_FILE = ".dyntrain-code"  # file in the code's folder that names the S3 object from which the code came
Download = Callable[[str, str, str], object]  # bucket, key, path


def fetch_code(source: str, volume: Path, download: Download) -> Path:
    """Download the code and unpack it on the shared volume; returns the folder of the code.

    Raises one of `bucket.AWS_ERRORS`, or CommandFailed. CommandFailed is also raised if the volume already contains
    code from another source.
    """
    from dyntrain.node_bootstrap.job.command import unpack

    folder = volume / CODE_FOLDER
    if folder.is_dir():
        return _check_code_source(source, folder)
    bucket, _, key = source.removeprefix("s3://").partition("/")
    with tempfile.TemporaryDirectory(dir=volume, prefix=f".{CODE_FOLDER}-") as temporary_folder:
        archive_path, unpacked_folder = Path(temporary_folder) / "archive", Path(temporary_folder) / CODE_FOLDER
        download(bucket, key, str(archive_path))
        unpack(archive_path, unpacked_folder)
        (unpacked_folder / SOURCE_FILE).write_text(source)
        try:
            unpacked_folder.rename(folder)
        except OSError:
            if not folder.is_dir():  # otherwise another node was faster
                raise
    return _check_code_source(source, folder)


def _check_code_source(source: str, folder: Path) -> Path:
    """Return the folder if its code came from `source`; otherwise raises CommandFailed."""
    from dyntrain.node_bootstrap.job.command import CommandFailed

    origin_file = folder / SOURCE_FILE
    existing_source = origin_file.read_text() if origin_file.is_file() else "an unknown source"
    if existing_source != source:
        raise CommandFailed(
            f"the volume already contains a folder {CODE_FOLDER}, with the code of {existing_source}; move it away"
        )
    return folder


def main() -> int:
    """Fetch the code and run its prepare-data.py; returns the exit code."""
    # imported here: the node's program needs only the constants of this file
    from dyntrain.node_bootstrap.job.bucket import AWS_ERRORS, aws_client
    from dyntrain.node_bootstrap.job.command import CommandFailed

    source = os.environ[CODE_VARIABLE]
    try:
        download = aws_client("s3", os.environ["AWS_DEFAULT_REGION"]).download_file
        folder = fetch_code(source, Path(os.environ["EFS_MOUNT"]), download)
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
