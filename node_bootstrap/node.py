"""The bootstrap process of a node: a single instance, stopped cleanly by signals, with exit codes for systemd."""

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
from dyntrain.node_bootstrap.steps.prepare import preparation, write_marker
from dyntrain.node_bootstrap.steps.run import Dependencies, Run

log = logging.getLogger(__name__)


async def run_node(dependencies: Dependencies, beat: Callable[[], None] | None = None) -> int:
    """Run the node's bootstrap; returns its exit code.

    The code is RETIRED, CONFIGURATION (a person must act), TRY_AGAIN (systemd restarts it), FAULT, or 128 + the number
    of the signal that stopped it. On return none of the node's processes is left. `beat` is called repeatedly while the
    event loop runs.
    """
    context: dict[str, Any] = {}
    signals: list[int] = []
    with logging_to(dependencies.layout.node_log, context), beating(beat, dependencies.timing.beat):
        try:
            account = dependencies.account
            if account is not None:
                log.info("the job's programs run as another user", extra={"user": account.name, "uid": account.uid})
            with single_instance(dependencies.layout.lock):
                attempt = next_attempt(dependencies.layout.attempt, time.time())
                context["attempt"] = attempt
                children = Children(str(dependencies.layout.state), attempt)
                run = Run(dependencies, attempt, children, context)
                bootstrap_task = asyncio.create_task(Bootstrap(run).run())
                with stopping_on_signals(bootstrap_task, signals):
                    try:
                        await bootstrap_task
                        return RETIRED
                    finally:
                        bootstrap_task.cancel()
                        await children.stop_all(dependencies.timing.stop_grace)
        except asyncio.CancelledError:
            if not signals:
                raise
            log.info("stopped", extra={"signal": signal.Signals(signals[0]).name})
            return 128 + signals[0]
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
    """Print which steps of the bootstrap are done and which are left, without carrying out any.

    Returns an exit code of `run_node`.
    """
    children = Children(str(dependencies.layout.state), 0)
    bootstrap = Bootstrap(Run(dependencies, 0, children, {}))
    try:
        reasons = {planned.step: planned.reason for planned in await bootstrap.read_plan()}
    except NodeError as error:
        hint = (
            "this is no EC2 instance, or its metadata service is disabled: "
            if isinstance(error, MetadataUnavailable)
            else ""
        )
        sys.stderr.write(f"{hint}{error}\n")
        return CONFIGURATION if isinstance(error, GiveUp) else TRY_AGAIN
    for step in bootstrap.steps:
        sys.stdout.write(f"{step.name:<12}  {f'left: {reasons[step]}' if step in reasons else 'done'}\n")
    return 0


async def mark_prepared(dependencies: Dependencies) -> int:
    """Mark this node as prepared, for a person. The bootstrap, which may be running, then skips prepare-data.

    Returns an exit code of `run_node`.
    """
    run = Run(dependencies, 0, Children(str(dependencies.layout.state), 0), {})
    try:
        await Bootstrap(run).read_plan()
    except NodeError as error:
        hint = (
            "this is no EC2 instance, or its metadata service is disabled: "
            if isinstance(error, MetadataUnavailable)
            else ""
        )
        sys.stderr.write(f"mark-prepared: {hint}{error}\n")
        return CONFIGURATION if isinstance(error, GiveUp) else TRY_AGAIN
    prepare = await preparation(run)
    try:
        digest, state = await prepare.check()
        if state.is_complete:
            sys.stdout.write(f"nothing to do: {prepare.marker_path} exists: {state.value}\n")
            return 0
        write_marker(prepare.marker_path, prepare.marker(digest, by_hand=True))
    except OSError as error:
        sys.stderr.write(f"mark-prepared: {error.strerror or error}: {error.filename2 or error.filename or ''}\n")
        return CONFIGURATION
    identity = run.known_identity
    sys.stdout.write(
        f"{identity.instance_id} of cluster {identity.cluster} is marked as prepared: {prepare.marker_path}\n"
        "the node reads the marker at its next check; after prepare-data failed for good, within seconds\n"
    )
    return 0


def attempt_after(recorded: str | None, now: float) -> int:
    """Number of the attempt after the recorded one.

    If the record is no number, the next number is the time in seconds, higher than any count. The controller ignores
    attempts below the highest that it has seen.
    """
    if recorded is None:
        return 1
    text = recorded.strip()
    return int(text) + 1 if text.isascii() and text.isdigit() else int(now)


def next_attempt(path: Path, now: float) -> int:
    """Number of this run of the bootstrap, which grows with each start, also across reboots.

    The number is on disk before its use. Raises OSError.
    """
    recorded = path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
    attempt = attempt_after(recorded, now)
    write_atomically(path, f"{attempt}\n")
    return attempt


@contextmanager
def beating(beat: Callable[[], None] | None, pause: float) -> Iterator[None]:
    """Call `beat` at once and every `pause` seconds while the block runs, unless something blocks the event loop."""

    async def keep_beating(beat: Callable[[], None]) -> None:
        while True:
            beat()
            await asyncio.sleep(pause)

    task = asyncio.create_task(keep_beating(beat)) if beat is not None else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()


@contextmanager
def single_instance(path: Path) -> Iterator[None]:
    """Hold a lock, which the kernel releases when the process ends. Raises AlreadyRunning."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyRunning(f"another node bootstrap holds {path}") from error
        yield


@contextmanager
def stopping_on_signals(task: asyncio.Task[None], signals: list[int]) -> Iterator[None]:
    """Cancel `task` on SIGTERM and SIGINT, and append each signal to `signals`."""
    loop = asyncio.get_running_loop()

    def stop(signum: signal.Signals) -> None:
        if not signals:  # a second signal must not interrupt the clean-up after the first
            task.cancel()
        signals.append(signum)

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop, signum)
    try:
        yield
    finally:
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(signum)
