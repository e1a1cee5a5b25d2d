"""`dyntrain tensorboard`: a job's curves in TensorBoard, also while it runs."""

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
from dyntrain.controller.cli.shell.board_news import News, news_of
from dyntrain.controller.cli.shell.completion import CLUSTER
from dyntrain.controller.cli.shell.errors import one_clear_line
from dyntrain.controller.cli.shell.waiting import follow, waiting
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.contract.folders import not_local_problem
from dyntrain.missing import require

if TYPE_CHECKING:
    from dyntrain.controller.adapters.board_bucket import BoardBucket
    from dyntrain.training.report.board import Entry
    from dyntrain.training.report.board_files import BoardFiles

END_SECONDS = 5.0
UPLOAD_SECONDS = 15.0  # between uploads, each of a whole file


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
    """Metrics, samples/s, workers and pauses over the job's steps, its changes as text.

    JOB is what `dyntrain report` takes: an events.jsonl or the folder with one; or the name of a cluster or of its job,
    whose reports carry a bounded history. What did not count and was trained again is shown once. Needs the extra
    `tensorboard`.
    """
    with one_clear_line(), ExitStack() as stack:
        require(("tensorboard",))
        if not serve and logdir is None:
            raise GiveUp("--no-serve wants a --logdir, where the files stay")
        if logdir is not None and not logdir.startswith("s3://") and not_local_problem(logdir):
            raise GiveUp(f"--logdir {logdir} is no folder and no s3://BUCKET/PREFIX")
        with waiting("reading the job"):
            from dyntrain.controller.jobs.submission.code import source_of

            news = news_of(job)
            first = list(news.next())
        in_s3 = source_of(logdir) if logdir is not None else None
        if logdir is None or in_s3 is not None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dyntrain-tensorboard-")))
        else:
            folder = Path(logdir)
        run = re.sub(r"[^\w.-]", "_", news.name)
        from dyntrain.training.report.board_files import BoardFiles

        try:
            files = BoardFiles(folder / run)
        except OSError as error:
            raise GiveUp(f"{folder} cannot be written: {error.strerror or error}") from error
        stack.callback(files.close)
        course = _Course(news, files, _bucket(*in_s3, run, folder / run) if in_s3 is not None else None)
        course.write(first)
        if serve or following:
            for ending in (signal.SIGINT, signal.SIGTERM):  # set also where a shell's background job ignores Ctrl-C
                signal.signal(ending, signal.default_int_handler)
        if serve:
            course.board = stack.enter_context(_tensorboard(folder, host, port))
        if serve or following:
            stack.callback(course.finish)
            with suppress(_Over):
                follow(course.go_on)
        if not serve:
            click.echo(f"{course.written} entries of {news.name} in {logdir}")


class _Over(Exception):
    """Raised when the job has ended, and everything is written."""


class _Course:
    """Write a job's course as TensorBoard's files, and to S3, where a failed upload is tried again."""

    def __init__(self, news: News, files: BoardFiles, bucket: BoardBucket | None) -> None:
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
        """Upload to S3. Raises ControllerError."""
        if self._bucket is not None:
            self._bucket.sync()
            self._uploaded = time.monotonic()

    def finish(self) -> None:
        """Write what came last, after an interruption."""
        self.write(list(self._news.next()))
        self.upload()

    def go_on(self) -> None:
        if self.board is None and self._news.over:
            raise _Over
        if self.board is not None and self.board.poll() is not None:
            raise GiveUp(f"TensorBoard has ended with exit code {self.board.returncode}; see its output above")
        self.write(list(self._news.next()))


def _bucket(bucket: str, prefix: str, run: str, folder: Path) -> BoardBucket:
    from dyntrain.controller.adapters.aws import Clients
    from dyntrain.controller.adapters.board_bucket import BoardBucket
    from dyntrain.training.report.board_files import SUFFIX

    if not bucket:
        raise GiveUp(f"--logdir s3:///{prefix} names no bucket: s3://BUCKET/PREFIX")
    return BoardBucket(Clients(attempts=2), bucket, f"{prefix.rstrip('/')}/{run}", folder, SUFFIX)


@contextmanager
def _tensorboard(folder: Path, host: str, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run TensorBoard, which prints where it listens, or why it cannot."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--host", host, "--port", str(port)]
    last: Callable[[], None] | None = None
    if sys.platform == "linux":  # elsewhere it may outlive a command that is killed
        from dyntrain.training.host.exec_child import die_with_parent

        last = partial(die_with_parent, os.getpid())
    process = subprocess.Popen(command, preexec_fn=last, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
