"""The bootstrap's process on a node: one at a time, stopped in good order by signals, with an exit code that tells systemd what to do next."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from node_bootstrap.attempt import next_attempt
from node_bootstrap.errors import AlreadyRunning, GiveUp, NodeError, RetryLater
from node_bootstrap.life import Life
from node_bootstrap.logs import logging_to
from node_bootstrap.plan import Step, plan
from node_bootstrap.processes import Children
from node_bootstrap.setting import Setting

RETIRED = 0
FAULT = 70  # the numbers of sysexits.h
TRY_AGAIN = 75
CONFIGURATION = 78
log = logging.getLogger(__name__)


async def run_node(setting: Setting) -> int:
    """The exit code: RETIRED, CONFIGURATION (a person must act), TRY_AGAIN (start me again), FAULT, or 128 + the signal that stopped it.

    On return no process that the node started is left.
    """
    context: dict[str, Any] = {}
    signals: list[int] = []
    with logging_to(setting.layout.node_log, context):
        try:
            with only_one(setting.layout.lock):
                attempt = next_attempt(setting.layout.attempt, time.time())
                context["attempt"] = attempt
                children = Children(str(setting.layout.state), attempt)
                life = asyncio.create_task(Life(setting, attempt, children, context).run())
                with stopping_on_signals(life, signals):
                    try:
                        await life
                        return RETIRED
                    finally:
                        life.cancel()
                        await children.stop_all(setting.timing.stop_grace)
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


async def print_plan(setting: Setting) -> int:
    """Print what a bootstrap that were started now would find done and what would be left, and carry out none of it. Exit codes as of `run_node`."""
    children = Children(str(setting.layout.state), 0)
    life = Life(setting, 0, children, {})
    try:
        await life.get_acquainted()
        left = {planned.step: planned.reason for planned in plan(await life.observe())}
    except NodeError as error:
        sys.stderr.write(f"{error}\n")
        return CONFIGURATION if isinstance(error, GiveUp) else TRY_AGAIN
    for step in Step:
        sys.stdout.write(f"{step.value:<12}  left: {left[step].value}\n" if step in left else f"{step.value:<12}  done\n")
    return 0


@contextmanager
def only_one(path: Path) -> Iterator[None]:
    """Raises AlreadyRunning; the kernel lets go of the lock when the process ends, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AlreadyRunning(f"another node bootstrap holds {path}") from error
        yield


@contextmanager
def stopping_on_signals(life: asyncio.Task[None], signals: list[int]) -> Iterator[None]:
    """SIGTERM and SIGINT end the life in good order, and are noted."""
    loop = asyncio.get_running_loop()

    def stop(signum: signal.Signals) -> None:
        if not signals:  # a second signal must not interrupt the clean-up that the first began
            life.cancel()
        signals.append(signum)

    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop, signum)
    try:
        yield
    finally:
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(signum)
