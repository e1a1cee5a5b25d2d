"""Program that uploads a job's results to S3: its commits, the files in `job.output`, and TensorBoard's curves.

For each line of its standard input, the program uploads all new and changed results and prints an `Uploaded` message.
The program ends when its standard input ends. In S3, the program needs only the permission to put objects. A file that
is deleted from the shared volume stays in the bucket until the bucket's lifecycle rules delete it.

The coordinator runs this program as a separate process, because accesses to the volume and to S3 may hang for minutes.

This command uploads to `commits/`, `output/` and `tensorboard/` in `s3://my-bucket/runs/job-1/`:

    python -m dyntrain.training.report.uploads /myEFSvolume/dyntrain/demo/job-1 s3://my-bucket/runs
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.training.host import aws
from dyntrain.training.layout import JobFolder
from dyntrain.training.ledger import EventTail
from dyntrain.training.protocol.results import Uploaded
from dyntrain.training.records import Unreadable
from dyntrain.training.report.board import Board

S3_ERRORS = (BotoCoreError, ClientError, boto3.exceptions.Boto3Error)
S3_CONFIG = Config(connect_timeout=5, read_timeout=60, retries={"mode": "standard", "total_max_attempts": 5})


class Bucket(Protocol):
    """Destination of uploads."""

    def put(self, key: str, content: IO[bytes]) -> None:
        """Upload an object of any size, completely or not at all. Raises one of S3_ERRORS if the upload fails."""


class S3Folder:
    """A folder in S3, as a destination of uploads. `location` has the form s3://BUCKET or s3://BUCKET/PREFIX."""

    def __init__(self, location: str) -> None:
        self._bucket, _, prefix = location.removeprefix("s3://").partition("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._client: Any = None

    def put(self, key: str, content: IO[bytes]) -> None:
        if self._client is None:
            self._client = aws.session().client("s3", config=S3_CONFIG)
        self._client.upload_fileobj(content, self._bucket, self._prefix + key)


class CurveFile:
    """The event file with the job's curves for TensorBoard, which is uploaded to the bucket.

    The event file has the same name on all nodes. So in the bucket a new coordinator's event file replaces that of the
    previous coordinator, and TensorBoard shows no curve twice.
    """

    def __init__(self, job: JobFolder, folder: Path) -> None:
        from dyntrain.training.report.board_files import SUFFIX, BoardFiles

        self.name = f"tensorboard/events.out.tfevents.0.{job.root.name}{SUFFIX}"
        self._folder, self._files = folder, BoardFiles(folder)
        self._tail, self._board = EventTail(job.events), Board()

    def updated_file(self) -> Path:
        """Add the job's new events to the event file, and return the file's path.

        Raises OSError and Unreadable if the events cannot be read.
        """
        while new_events := self._tail.next():
            self._files.write(entry for event in new_events for entry in self._board.entries_of(event))
        return next(path for path in self._folder.iterdir() if path.is_file())


class Uploads:
    """Uploads of one job, with a record of the files uploaded so far."""

    def __init__(self, job: JobFolder, commits: Path, bucket: Bucket, curves: CurveFile | None) -> None:
        self._job, self._commits, self._bucket, self._curves = job, commits, bucket, curves
        self._uploaded: dict[str, tuple[int, int]] = {}

    def sync(self) -> Uploaded:
        """Upload those results of the job that are new or have changed since the last call.

        An unreadable file is skipped and named in the returned message. After an error of S3, `sync` uploads no more
        files.
        """
        started_at, file_count, total_bytes, upload_error = time.monotonic(), 0, 0, None
        for name, path in self._result_files():
            try:
                uploaded_bytes = self._upload(name, path if isinstance(path, Path) else path())
            except FileNotFoundError as error:
                if not name.startswith("commits/"):  # an old commit was deleted meanwhile
                    upload_error = f"{name}: {error}"
                continue
            except (OSError, Unreadable) as error:
                upload_error = f"{name}: {error}"
                continue
            except S3_ERRORS as error:
                upload_error = f"{name}: {error}"
                break
            if uploaded_bytes is not None:
                file_count, total_bytes = file_count + 1, total_bytes + uploaded_bytes
        return Uploaded(files=file_count, size=total_bytes, seconds=time.monotonic() - started_at, failed=upload_error)

    def _upload(self, name: str, path: Path) -> int | None:
        """Upload one file; returns its size in bytes, or None if the file is not uploaded.

        Unchanged files and pipes are not uploaded; a link raises OSError.
        """
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as content:
            file_status = os.fstat(content.fileno())
            size_and_time = (file_status.st_size, file_status.st_mtime_ns)
            if not stat.S_ISREG(file_status.st_mode) or self._uploaded.get(name) == size_and_time:
                return None
            self._bucket.put(f"{self._job.root.name}/{name}", content)
            self._uploaded[name] = size_and_time
            return file_status.st_size

    def _result_files(self) -> Iterator[tuple[str, Path | Callable[[], Path]]]:
        """Yield for each result file its name in the bucket, and its path or a function that makes the file and returns
        its path.

        Files whose names begin with a dot are left out, because they may be incomplete.
        """
        for path in sorted(self._commits.glob("*.commit"), reverse=True):
            yield f"commits/{path.name}", path
        output_folder = self._job.output
        for folder, subfolders, names in os.walk(output_folder):
            subfolders[:] = sorted(name for name in subfolders if not name.startswith("."))
            for name in sorted(names):
                path = Path(folder) / name
                if not name.startswith(".") and not path.is_symlink():
                    yield f"output/{path.relative_to(output_folder)}", path
        if self._curves is not None:
            yield self._curves.name, self._curves.updated_file


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dyntrain.training.report.uploads", description=__doc__)
    parser.add_argument("job", type=Path, help="the job's folder on the shared volume")
    parser.add_argument("location", help="s3://BUCKET/PREFIX")
    parser.add_argument("--commits", type=Path, help="where the job's commits are, if not in its folder")
    args = parser.parse_args(argv)
    job_folder = JobFolder(args.job)
    with tempfile.TemporaryDirectory(prefix="dyntrain-uploads-") as folder:
        curves = None
        if importlib.util.find_spec("tensorboard") is not None:
            curves = CurveFile(job_folder, Path(folder))
        else:
            print("no curves for TensorBoard: install dyntrain[tensorboard]", file=sys.stderr)  # noqa: T201
        uploads = Uploads(job_folder, args.commits or job_folder.commits, S3Folder(args.location), curves)
        for _ in sys.stdin:
            sys.stdout.write(uploads.sync().model_dump_json() + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
