"""Runs `dyntrain launch` on a node of a cluster: the cluster runs the job, and this process only follows the job.

The node's program passes the training command to the coordinator, and all nodes start their workers with the command.
The tags and groups of the instances decide which nodes train. The process of `dyntrain launch` only shows the job's
events and output, and the job continues if this process ends.
"""

from __future__ import annotations

import os
import select
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from dyntrain.training import events
from dyntrain.training.coordinator.host_log import HOST_FILE, HOST_LOG
from dyntrain.training.coordinator.progress import describe
from dyntrain.training.launch.launcher_lines import LauncherLines
from dyntrain.training.launch.plan import ClusterPlan, LaunchError
from dyntrain.training.ledger import EventTail
from dyntrain.training.protocol.launch_desk import SOCKET, VARIABLE, EndQuestion, LaunchQuestion, Reply, ask

LOOK_SECONDS = 0.2  # between checks for new events and output
RETRY_SECONDS = 1.0  # between requests to the node's program
EARLIER_LAUNCH_SECONDS = 60.0  # longest wait for the end of the previous launch
QUIET_END_SECONDS = 2.0  # without output after the job's end, as the script may still print
MAX_READ_BYTES = 1024 * 1024  # of the worker's output at once
FORWARDED_NAMES = ("LD_LIBRARY_PATH", "PYTHONPATH", "OMP_NUM_THREADS", "KMP_AFFINITY")  # as MXNet's launchers do
FORWARDED_PREFIXES = ("MXNET_",)  # of variables that the workers also get
INTERRUPTED = 130  # exit code


def socket_path() -> Path | None:
    """Return the path of the socket to which launches are sent, or None if this machine is no node of a cluster."""
    if path := os.environ.get(VARIABLE):
        return Path(path)
    return SOCKET if SOCKET.exists() else None


def forwarded_environment() -> dict[str, str]:
    """Return the variables of this process's environment that the job's workers also get."""
    return {
        name: value
        for name, value in os.environ.items()
        if name in FORWARDED_NAMES or name.startswith(FORWARDED_PREFIXES)
    }


def launch_on_cluster(path: Path, plan: ClusterPlan) -> int:
    """Launch a job on the cluster, and show its events and output until the job ends. Raises LaunchError.

    Returns 0 if the job finished, 1 if the job failed or was stopped, and 130 if the job continues after Ctrl-C.
    """
    request_id = uuid.uuid4().hex
    current_directory = Path.cwd()
    question = LaunchQuestion(
        request=request_id,
        command=plan.command,
        directory=str(current_directory),
        environment={**forwarded_environment(), **plan.environment},
        dt_scripts=plan.dt_scripts,
    )
    reply = _ask_repeatedly(path, question, EARLIER_LAUNCH_SECONDS)
    job_directory = Path(reply.directory)
    if job_directory != current_directory:
        _print_line(f"{current_directory} is not on the shared volume: the job runs in {job_directory}")
    _print_line(f"Created worker host file {job_directory / HOST_FILE}")
    _print_line(f"Created worker host log file {job_directory / HOST_LOG}")
    return _follow_job(_JobStreams(reply), lambda: _ask_repeatedly(path, EndQuestion(request=request_id)))


def _ask_repeatedly(path: Path, question: LaunchQuestion | EndQuestion, patience_seconds: float = 0.0) -> Reply:
    """Send a request to the node's program.

    If the program refuses the request only temporarily, the request is repeated for up to `patience_seconds`.

    Raises LaunchError.
    """
    deadline = time.monotonic() + patience_seconds
    last_refusal = ""
    while (reply := _ask_node(path, question)).passing and time.monotonic() < deadline:
        if reply.refused != last_refusal:
            _print_line(f"{reply.refused}; asking again for {patience_seconds:.0f} s")
        last_refusal = reply.refused
        time.sleep(RETRY_SECONDS)
    if reply.refused:
        raise LaunchError(reply.refused)
    return reply


def _ask_node(path: Path, question: LaunchQuestion | EndQuestion) -> Reply:
    """Send a request to the node's program once. Raises LaunchError if no valid answer arrives."""
    try:
        return ask(path, question)
    except PermissionError as error:
        raise LaunchError(f"{path}: {error.strerror}; only root and the group of the job's user may launch") from error
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise LaunchError(
            f"this node accepts no launches ({error.strerror}: {path}): log in on the master, the last line of "
            "$DEEPLEARNING_WORKERS_PATH, once it is prepared"
        ) from error
    except (OSError, ValueError) as error:
        raise LaunchError(f"the node's program does not answer the launch request: {error}") from error


@dataclass
class _JobStreams:
    """The job's events and the output of this node's worker since the launch."""

    reply: Reply  # answer of the node's program to the launch
    _event_tail: EventTail = field(init=False)  # reads the job's new events
    _output_byte: int = field(init=False)  # number of the log's bytes that were shown

    def __post_init__(self) -> None:
        self._event_tail = EventTail(Path(self.reply.events))
        output_file = Path(self.reply.log)
        self._output_byte = output_file.stat().st_size if output_file.exists() else 0

    def events(self) -> list[events.Event]:
        """Return the job's events since the last call.

        Events of a kind that this version does not know are left out.
        """
        try:
            return self._event_tail.next(skip_unknown=True)
        except OSError:
            return []

    def copy_new_output(self, output: BinaryIO) -> bool:
        """Write the worker's new output to `output`. Returns whether there was new output."""
        new_output, self._output_byte = _read_new_output(Path(self.reply.log), self._output_byte)
        output.write(new_output)
        output.flush()
        return bool(new_output)


def _read_new_output(path: Path, start_byte: int) -> tuple[bytes, int]:
    """Read the worker's output file from `start_byte` on, or from its start if the file was truncated.

    Returns the new output and the byte at which the next read should start.
    """
    try:
        with path.open("rb") as output_file:
            file_size = output_file.seek(0, os.SEEK_END)
            output_file.seek(start_byte if start_byte <= file_size else 0)
            new_output = output_file.read(MAX_READ_BYTES)
            return new_output, output_file.tell()
    except OSError:
        return b"", start_byte


def _follow_job(streams: _JobStreams, end_job: Callable[[], object]) -> int:
    """Show the job's events and output until the job ends. Returns the exit code of `dyntrain launch`."""
    exit_code: int | None = None
    last_output_at = time.monotonic()
    launcher_lines = LauncherLines()
    first_lines = [f"{streams.reply.job} runs on the cluster: tags and groups decide how many nodes train"]
    while exit_code is None or time.monotonic() - last_output_at < QUIET_END_SECONDS:
        try:
            while first_lines:
                _print_line(first_lines.pop())  # inside the try, since the user may press Ctrl-C at once
            if streams.copy_new_output(sys.stdout.buffer):
                last_output_at = time.monotonic()
            for event in streams.events():
                if isinstance(event, events.Finished | events.Failed):
                    exit_code, last_output_at = int(isinstance(event, events.Failed)), time.monotonic()
                for line in (*launcher_lines.lines_for(event), describe(event)):
                    _print_line(line)
            time.sleep(LOOK_SECONDS)
        except KeyboardInterrupt:
            if exit_code is not None:
                break
            if not _confirm_end():
                _print_line(f"{streams.reply.job} continues: `dyntrain status --watch` shows it")
                return INTERRUPTED
            end_job()
    return exit_code


def _confirm_end() -> bool:
    """Ask the user whether to stop the job. Without a terminal, and after a second Ctrl-C, the answer is no."""
    if not sys.stdin.isatty():
        return False
    try:
        sys.stderr.write("\nEnd the job on all nodes? [y/N] ")
        sys.stderr.flush()
        # A Ctrl-C just before a blocking read is only handled when the read ends, which may be never
        while not select.select([sys.stdin], [], [], LOOK_SECONDS)[0]:
            pass
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except KeyboardInterrupt:
        return False


def _print_line(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} INFO {text}\n")
    sys.stderr.flush()
