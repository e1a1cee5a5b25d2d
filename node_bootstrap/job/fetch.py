"""The prepare-data of a cluster whose code comes from S3: the archive is unpacked on the volume that all nodes share,
by whichever node is first, whole or not at all; then the code's own prepare-data.py runs, if it has one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

FOLDER = "code"  # on the volume
VARIABLE = "DYNTRAIN_CODE"  # s3://BUCKET/KEY
OWN = "prepare-data.py"
ORIGIN = ".dyntrain-code"  # in the folder: where its files come from
Download = Callable[[str, str, str], object]  # bucket, key, path


def fetch(source: str, volume: Path, download: Download) -> Path:
    """Raises CommandFailed, also where the volume has other code already; or one of `bucket.PROBLEMS`."""
    from dyntrain.node_bootstrap.job.command import unpack

    folder = volume / FOLDER
    if folder.is_dir():
        return _of(source, folder)
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
    return _of(source, folder)


def _of(source: str, folder: Path) -> Path:
    """Another script, or an older one, must not be trained without a word."""
    from dyntrain.node_bootstrap.job.command import CommandFailed

    origin = folder / ORIGIN
    found = origin.read_text() if origin.is_file() else "somebody"
    if found != source:
        raise CommandFailed(f"the volume has a folder {FOLDER} already, with the code of {found}; move it away")
    return folder


def main() -> int:
    # here: the node's own program imports this file for its names alone
    from dyntrain.node_bootstrap.job.bucket import PROBLEMS, client
    from dyntrain.node_bootstrap.job.command import CommandFailed

    source = os.environ[VARIABLE]
    try:
        download = client("s3", os.environ["AWS_DEFAULT_REGION"]).download_file
        folder = fetch(source, Path(os.environ["EFS_MOUNT"]), download)
    except (CommandFailed, *PROBLEMS) as error:
        print(f"prepare-data: {source}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"prepare-data: the code of {source} is in {folder}", flush=True)  # noqa: T201
    if (folder / OWN).is_file():
        os.chdir(folder)
        os.execv(sys.executable, [sys.executable, OWN])  # noqa: S606  # its exit code is ours
    return 0


if __name__ == "__main__":
    sys.exit(main())
