"""`dyntrain tensorboard`: show the curves of a running or ended job in TensorBoard."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from dyntrain.controller.cli.shell.board_news import JobNews, news_of
from dyntrain.controller.cli.shell.completion import CLUSTER
from dyntrain.controller.cli.shell.errors import errors_on_one_line
from dyntrain.controller.cli.shell.waiting import follow, waiting
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.contract.folders import not_local_problem
from dyntrain.missing import require

if TYPE_CHECKING:
    from dyntrain.controller.adapters.board_bucket import BoardBucket
    from dyntrain.training.report.board import Entry
    from dyntrain.training.report.board_files import BoardFiles

STOP_SECONDS = 5.0  # TensorBoard is killed so long after the signal to end
UPLOAD_SECONDS = 15.0  # between two uploads of the files to S3


@click.command(
    epilog="Examples:\n\n\b\n  dyntrain tensorboard demo\n"
    "  dyntrain tensorboard /myEFSvolume/dyntrain/demo/job-20260101-120000-ab12 --port 0\n"
    "  dyntrain tensorboard events.jsonl --logdir runs --no-serve\n"
    "  dyntrain tensorboard demo --logdir s3://my-bucket/runs --no-serve --follow"
)
@click.argument("job", required=False, type=CLUSTER)
@click.option(
    "--logdir",
    help="Where TensorBoard's files go, in a folder of the job's name, and stay: a folder or s3://BUCKET/PREFIX.  "
    "[default: a folder that goes]",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address that TensorBoard listens at.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=6006, show_default=True, help="Its port; 0 picks a free one."
)
@click.option("--serve/--no-serve", default=True, help="Start TensorBoard and go on, or write what there is and end.")
@click.option("-f", "--follow", "following", is_flag=True, help="With --no-serve: go on until the job ends.")
def tensorboard(job: str | None, logdir: str | None, host: str, port: int, serve: bool, following: bool) -> None:
    """Show a job's metrics, samples/s, workers, pauses and membership changes over the steps in TensorBoard.

    JOB is a file events.jsonl, the folder of such a file, or the name of a cluster or job. Given a name, the command
    shows the history in the job's reports to the controller. The reported history is of limited length. A step that was
    trained twice is shown only once. The command needs dyntrain's extra `tensorboard`.
    """
    with errors_on_one_line(), ExitStack() as exit_stack:
        require(("tensorboard",))
        if not serve and logdir is None:
            raise GiveUp("the option --no-serve needs --logdir, the folder for TensorBoard's files")
        if logdir is not None and not logdir.startswith("s3://") and not_local_problem(logdir):
            raise GiveUp(f"--logdir {logdir} is neither a folder nor s3://BUCKET/PREFIX")
        with waiting("reading the job"):
            from dyntrain.controller.jobs.submission.code import source_of

            job_news = news_of(job)
            first_entries = list(job_news.next())
        s3_location = source_of(logdir) if logdir is not None else None
        if logdir is None or s3_location is not None:
            board_folder = Path(exit_stack.enter_context(tempfile.TemporaryDirectory(prefix="dyntrain-tensorboard-")))
        else:
            board_folder = Path(logdir)
        run_name = re.sub(r"[^\w.-]", "_", job_news.name)
        from dyntrain.training.report.board_files import BoardFiles

        try:
            board_files = BoardFiles(board_folder / run_name)
        except OSError as error:
            raise GiveUp(f"{board_folder} cannot be written: {error.strerror or error}") from error
        exit_stack.callback(board_files.close)
        board_writer = _BoardWriter(
            job_news,
            board_files,
            _board_bucket(*s3_location, run_name, board_folder / run_name) if s3_location is not None else None,
        )
        board_writer.write(first_entries)
        if serve or following:
            for end_signal in (signal.SIGINT, signal.SIGTERM):  # also for background jobs, which ignore Ctrl-C
                signal.signal(end_signal, signal.default_int_handler)
        if serve:
            board_writer.board = exit_stack.enter_context(_running_tensorboard(board_folder, host, port))
        if serve or following:
            exit_stack.callback(board_writer.finish)
            with suppress(_JobEnded):
                follow(board_writer.write_new_entries)
        if not serve:
            click.echo(f"{board_writer.written} entries of {job_news.name} in {logdir}")


class _JobEnded(Exception):
    """Raised when the job has ended and all entries of the job for TensorBoard are written."""


class _BoardWriter:
    """Write a job's entries to TensorBoard's files, and upload these files to S3. A failed upload to S3 is repeated
    later.
    """

    def __init__(self, news: JobNews, files: BoardFiles, bucket: BoardBucket | None) -> None:
        self._news, self._files, self._bucket = news, files, bucket
        self._uploaded = float("-inf")
        self.written = 0
        self.board: subprocess.Popen[bytes] | None = None

    def write(self, entries: Sequence[Entry]) -> None:
        self._files.write(entries)
        self.written += len(entries)
        if self._news.over or time.monotonic() - self._uploaded > UPLOAD_SECONDS:
            self.upload()

    def upload(self) -> None:
        """Upload TensorBoard's files to S3 if a bucket is set. Raises ControllerError for a failed upload."""
        if self._bucket is not None:
            self._bucket.sync()
            self._uploaded = time.monotonic()

    def finish(self) -> None:
        """Write and upload the job's last entries, at the end of the command."""
        self.write(list(self._news.next()))
        self.upload()

    def write_new_entries(self) -> None:
        """Write the job's entries that are new since the last call. Raises GiveUp if TensorBoard has exited. Raises
        _JobEnded if TensorBoard was not started and the job is over.
        """
        if self.board is None and self._news.over:
            raise _JobEnded
        if self.board is not None and self.board.poll() is not None:
            raise GiveUp(f"TensorBoard has ended with exit code {self.board.returncode}; see its output above")
        self.write(list(self._news.next()))


def _board_bucket(bucket: str, prefix: str, run: str, folder: Path) -> BoardBucket:
    from dyntrain.controller.adapters.aws import Clients
    from dyntrain.controller.adapters.board_bucket import BoardBucket
    from dyntrain.training.report.board_files import SUFFIX

    if not bucket:
        raise GiveUp(f"--logdir s3:///{prefix} names no bucket: give s3://BUCKET/PREFIX")
    return BoardBucket(Clients(attempts=2), bucket, f"{prefix.rstrip('/')}/{run}", folder, SUFFIX)


@contextmanager
def _running_tensorboard(folder: Path, host: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run TensorBoard in a child process, which prints its address or its errors."""
    tensorboard_command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        "--logdir",
        str(folder),
        "--host",
        host,
        "--port",
        str(port),
    ]
    before_exec: Callable[[], None] | None = None
    if sys.platform == "linux":  # on other systems TensorBoard may outlive a killed command
        from dyntrain.training.host.exec_child import die_with_parent

        before_exec = partial(die_with_parent, os.getpid())
    process = subprocess.Popen(tensorboard_command, preexec_fn=before_exec, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
