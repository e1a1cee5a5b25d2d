"""Runs the node's program (the bootstrap) in one process per node. SIGTERM and SIGINT stop the program.

The program's exit codes tell systemd whether to start the program again.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dyntrain.node_bootstrap.host.errors import (
    CONFIGURATION,
    FAULT,
    RETIRED,
    TRY_AGAIN,
    AlreadyRunning,
    GiveUp,
    MetadataUnavailable,
    NodeError,
    RetryLater,
)
from dyntrain.node_bootstrap.host.files import write_atomically
from dyntrain.node_bootstrap.host.logs import logging_to
from dyntrain.node_bootstrap.host.processes import Children
from dyntrain.node_bootstrap.steps.bootstrap import Bootstrap
from dyntrain.node_bootstrap.steps.prepare import make_preparation, write_marker
from dyntrain.node_bootstrap.steps.run import Dependencies, ProgramRun

log = logging.getLogger(__name__)


async def run_node(dependencies: Dependencies, beat: Callable[[], None] | None = None) -> int:
    """Run the node's program; returns its exit code.

    The exit code is RETIRED, CONFIGURATION (a person must act), TRY_AGAIN (systemd starts the program again), FAULT, or
    128 + the number of the signal that stopped the program. On return all processes of the node have ended. `beat` is
    called repeatedly while the event loop runs, which proves that the program does not hang.
    """
    log_context: dict[str, Any] = {}
    received_signals: list[int] = []
    with (
        logging_to(dependencies.layout.node_log, log_context),
        calling_repeatedly(beat, dependencies.timing.watchdog_beat_seconds),
    ):
        try:
            user = dependencies.account
            if user is not None:
                log.info("the job's programs run as another user", extra={"user": user.name, "uid": user.uid})
            with single_instance_lock(dependencies.layout.lock_file):
                attempt = next_attempt(dependencies.layout.attempt_file, time.time())
                log_context["attempt"] = attempt
                children = Children(str(dependencies.layout.state_folder), attempt)
                bootstrap_run = ProgramRun(dependencies, attempt, children, log_context)
                bootstrap_task = asyncio.create_task(Bootstrap(bootstrap_run).run())
                with stopping_on_signals(bootstrap_task, received_signals):
                    try:
                        await bootstrap_task
                        return RETIRED
                    finally:
                        bootstrap_task.cancel()
                        await children.stop_all(dependencies.timing.node_stop_grace_seconds)
        except asyncio.CancelledError:
            if not received_signals:
                raise
            log.info("stopped", extra={"signal": signal.Signals(received_signals[0]).name})
            return 128 + received_signals[0]
        except GiveUp as error:
            log.error(str(error))
            return CONFIGURATION
        except RetryLater as error:
            log.error(str(error))
            return TRY_AGAIN
        except Exception:
            log.exception("the node bootstrap failed")
            return FAULT


async def print_plan(dependencies: Dependencies) -> int:
    """Print which steps of the node are done and which are left, without changing anything on the host.

    Returns the exit code: 0, or after an error CONFIGURATION or TRY_AGAIN, which mean the same as in `run_node`.
    """
    children = Children(str(dependencies.layout.state_folder), 0)
    bootstrap = Bootstrap(ProgramRun(dependencies, 0, children, {}))
    try:
        reason_by_step = {planned_step.step: planned_step.reason for planned_step in await bootstrap.read_plan()}
    except NodeError as error:
        hint = (
            "this is no EC2 instance, or its metadata service is disabled: "
            if isinstance(error, MetadataUnavailable)
            else ""
        )
        sys.stderr.write(f"{hint}{error}\n")
        return CONFIGURATION if isinstance(error, GiveUp) else TRY_AGAIN
    for step in bootstrap.steps:
        sys.stdout.write(
            f"{step.step_name:<12}  {f'left: {reason_by_step[step]}' if step in reason_by_step else 'done'}\n"
        )
    return 0


async def mark_prepared(dependencies: Dependencies) -> int:
    """Mark this node as prepared by a person, so that the node's program, which may be running, skips prepare-data.

    Returns the exit code: 0, or after an error CONFIGURATION or TRY_AGAIN, which mean the same as in `run_node`.
    """
    bootstrap_run = ProgramRun(dependencies, 0, Children(str(dependencies.layout.state_folder), 0), {})
    try:
        await Bootstrap(bootstrap_run).read_plan()
    except NodeError as error:
        hint = (
            "this is no EC2 instance, or its metadata service is disabled: "
            if isinstance(error, MetadataUnavailable)
            else ""
        )
        sys.stderr.write(f"mark-prepared: {hint}{error}\n")
        return CONFIGURATION if isinstance(error, GiveUp) else TRY_AGAIN
    node_preparation = await make_preparation(bootstrap_run)
    try:
        script_sha256, marker_state = await node_preparation.check_script_and_marker()
        if marker_state.is_complete:
            sys.stdout.write(f"nothing to do: {node_preparation.marker_path} exists: {marker_state.value}\n")
            return 0
        write_marker(node_preparation.marker_path, node_preparation.make_marker(script_sha256, by_hand=True))
    except OSError as error:
        sys.stderr.write(f"mark-prepared: {error.strerror or error}: {error.filename2 or error.filename or ''}\n")
        return CONFIGURATION
    identity = bootstrap_run.known_identity
    sys.stdout.write(
        f"{identity.instance_id} of cluster {identity.cluster} is marked as prepared: {node_preparation.marker_path}\n"
        "the node reads the marker at its next check; after prepare-data failed for good, within seconds\n"
    )
    return 0


def attempt_after(recorded_attempt: str | None, now: float) -> int:
    """Return the number of the next run of the node's program, after the run whose number was recorded.

    If `recorded_attempt` is no number, the new number is the time in seconds, which is higher than all earlier numbers.
    The numbers must grow, since the controller ignores reports of a run with a lower number than the highest that it
    has seen.
    """
    if recorded_attempt is None:
        return 1
    recorded_text = recorded_attempt.strip()
    return int(recorded_text) + 1 if recorded_text.isascii() and recorded_text.isdigit() else int(now)


def next_attempt(path: Path, now: float) -> int:
    """Return the number of this run of the node's program, which grows with each start, also after a reboot.

    The number is written to disk before it is returned. Raises OSError.
    """
    recorded_attempt = path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
    attempt = attempt_after(recorded_attempt, now)
    write_atomically(path, f"{attempt}\n")
    return attempt


@contextmanager
def calling_repeatedly(beat: Callable[[], None] | None, pause: float) -> Iterator[None]:
    """Call `beat` at once and then every `pause` seconds while the `with` block runs.

    While the event loop is blocked, `beat` is not called.
    """

    async def keep_beating(beat: Callable[[], None]) -> None:
        while True:
            beat()
            await asyncio.sleep(pause)

    beating_task = asyncio.create_task(keep_beating(beat)) if beat is not None else None
    try:
        yield
    finally:
        if beating_task is not None:
            beating_task.cancel()


@contextmanager
def single_instance_lock(path: Path) -> Iterator[None]:
    """Hold a lock on the file `path` while the `with` block runs, so that no second process runs this node's program.

    Raises AlreadyRunning if another process holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock_file:
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyRunning(
                f"this node's program is not started, since another process holds the lock {path}"
            ) from error
        yield


@contextmanager
def stopping_on_signals(task: asyncio.Task[None], received_signals: list[int]) -> Iterator[None]:
    """Cancel `task` on the first SIGTERM or SIGINT, and append each received signal to `received_signals`."""
    event_loop = asyncio.get_running_loop()

    def cancel_task(signum: signal.Signals) -> None:
        if not received_signals:  # a second signal must not interrupt the clean-up after the first
            task.cancel()
        received_signals.append(signum)

    for signum in (signal.SIGTERM, signal.SIGINT):
        event_loop.add_signal_handler(signum, cancel_task, signum)
    try:
        yield
    finally:
        for signum in (signal.SIGTERM, signal.SIGINT):
            event_loop.remove_signal_handler(signum)
