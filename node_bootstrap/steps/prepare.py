"""Runs the user's prepare-data script until it succeeds or all its attempts have failed.

Because of the marker `prepare_data_success_<private-ip>` on the shared volume, later runs of the node skip the script.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from dyntrain.controller.contract.messages import NodeConfig
from dyntrain.node_bootstrap.core.marker import Marker, MarkerFile, MarkerState, judge
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.core.plan import DONE, FAILED, Condition, pending
from dyntrain.node_bootstrap.host.files import read_dated, read_regular, write_atomically
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.processes import Children, Program, explain
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.reports.alive import report_of, reporting_alive
from dyntrain.node_bootstrap.steps.environment import process_environment
from dyntrain.node_bootstrap.steps.run import NodeStep, PrepareResult, Run
from dyntrain.node_bootstrap.steps.volume import MountVolume

KEPT_LOGS = 5
MARKER_BYTES = 64 * 1024
SCRIPT_BYTES = 64 * 1024 * 1024
LEFT_RUNNING_MESSAGE = (
    "prepare-data ended with exit code 0 and left processes running, which were ended; let it wait for them, or run a "
    "daemon as a systemd unit"
)
LEFT_CHARACTERS = 700
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Try:
    """One run of the script, as recorded in the state directory."""

    attempt: int
    number: int
    started_at: float
    seconds: float
    exit_code: int | None
    reason: str


@dataclass(frozen=True)
class Preparation:
    """The prepare-data of this node, and its marker."""

    config: NodeConfig
    identity: Identity
    attempt: int
    layout: Layout
    children: Children
    environment: Mapping[str, str]
    timing: Timing
    user: str | None = None  # used if the configuration names no user; None: this process's user

    async def check(self) -> tuple[str | None, MarkerState]:
        """Return the script's SHA-256 (None: nothing to prepare), and the marker's state.

        Raises OSError, also if the digest is not the one in `prepare_sha256`.
        """
        script = self.config.prepare_script
        digest = await asyncio.to_thread(script_digest, script) if script is not None else None
        if script is not None and self.config.prepare_sha256 not in (None, digest):
            raise OSError(f"the script is not run: its SHA-256 is {digest}, not the one in the field prepare_sha256")
        marker_file = await asyncio.to_thread(read_marker, self.marker_path)
        return digest, judge(marker_file, self.identity.instance_id, digest, self.identity.launched_at)

    async def run(self) -> PrepareResult:
        """Prepare the node, with retries. A failed script raises nothing: the result's reason has the output."""
        path = self.marker_path
        await asyncio.to_thread(self._drop_old_logs)
        reason, digest = "", None
        for number in range(1, self.config.prepare_attempts + 1):
            if number > 1:
                await asyncio.sleep(self.timing.prepare.delay(number - 2))
            try:
                if self.config.prepare_script is None:
                    await asyncio.to_thread(write_marker, path, self.marker(None))
                    return PrepareResult(True, 0, "nothing to prepare")
                # 1. gather: the script may be repaired between two tries
                digest, state = await self.check()
                # 2. decide
                if (result := await self._marked_result(digest, state, number - 1)) is not None:
                    return result
                log.info("preparing", extra={"try": number, "reason": state.value})
                # 3. apply
                await asyncio.to_thread(drop_marker, path)
                reason = await self._try(self.config.prepare_script, number)
                if not reason:
                    await asyncio.to_thread(write_marker, path, self.marker(digest))
                    return PrepareResult(True, number, f"prepared at try {number}", digest or "")
            except OSError as error:
                reason, digest = _describe(error, path), await self.current_digest()
            log.warning(
                "prepare-data failed", extra={"try": number, "of": self.config.prepare_attempts, "reason": reason}
            )
        return PrepareResult(
            False,
            self.config.prepare_attempts,
            f"prepare-data failed {self.config.prepare_attempts} times; the last: {reason}"[:2000],
            digest or "",
        )

    async def wait_until_repaired(self, failed: PrepareResult) -> PrepareResult | None:
        """Wait until a failed node is marked as prepared, or its script changes. Then the result is None.

        A volume that cannot be read is read again later.
        """
        while True:
            with contextlib.suppress(OSError):
                digest, state = await self.check()
                if (result := await self._marked_result(digest, state, failed.tries)) is not None:
                    return result
                if digest is not None and digest != failed.script:
                    log.info("prepare-data has changed: it is run again", extra={"script": digest})
                    return None
            await asyncio.sleep(self.timing.notices)

    async def current_digest(self) -> str | None:
        """Digest of the current script, even if it may not run; None if it cannot be read."""
        if self.config.prepare_script is None:
            return None
        with contextlib.suppress(OSError):
            return await asyncio.to_thread(script_digest, self.config.prepare_script)
        return None

    async def _marked_result(self, digest: str | None, state: MarkerState, tries: int) -> PrepareResult | None:
        """Return the result if the marker is valid, else None. Completes a marker made by hand. Raises OSError."""
        if state is MarkerState.BY_HAND:
            await asyncio.to_thread(write_marker, self.marker_path, self.marker(digest, by_hand=True))
            log.warning(
                "a person marked this node as prepared", extra={"marker": str(self.marker_path), "reason": state.value}
            )
        elif not state.is_complete:
            return None
        return PrepareResult(True, tries, state.value, digest or "")

    async def _try(self, script: str, number: int) -> str:
        """Run the script once; returns why it failed, or ""."""
        path = self.layout.prepare_log(self.attempt)
        started_at, started_monotonic = time.time(), time.monotonic()
        user = self.config.prepare_user or self.user
        program = Program(command_of(script), self.environment, path, self.config.mount, user=user)
        code, child = await self.children.run(
            "prepare-data", program, self.config.prepare_timeout_seconds, exclusive=True
        )
        reason = explain(code, self.config.prepare_timeout_seconds)
        if not reason and child.still_running:
            reason = f"{LEFT_RUNNING_MESSAGE}: {', '.join(child.still_running)}"[:LEFT_CHARACTERS]
        if reason and (output := child.last_output()):
            reason = f"{reason}; its last output:\n{output}"
        self._record(
            Try(self.attempt, number, started_at, round(time.monotonic() - started_monotonic, 3), code, reason)
        )
        return reason

    def _drop_old_logs(self) -> None:
        """Remove all but the last `KEPT_LOGS` logs: each start of the node makes a new log."""
        for path in self.layout.logs.glob("prepare-*"):
            attempt = path.name.removeprefix("prepare-").partition(".")[0]
            if attempt.isdecimal() and int(attempt) <= self.attempt - KEPT_LOGS:
                path.unlink(missing_ok=True)

    @property
    def marker_path(self) -> Path:
        return marker_path(self.config.mount, self.identity.private_ip)

    def _record(self, entry: Try) -> None:
        with self.layout.tries.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(entry)) + "\n")

    def marker(self, digest: str | None, *, by_hand: bool = False) -> Marker:
        return Marker(
            instance_id=self.identity.instance_id,
            attempt=self.attempt,
            script_sha256=digest,
            exit_code=0,
            at=time.time(),
            by_hand=by_hand,
        )


def command_of(script: str) -> list[str]:
    """The command of a script: Python scripts run with this process's interpreter."""
    return [sys.executable, script] if Path(script).suffix == ".py" else [script]


def marker_path(mount: str, private_ip: str) -> Path:
    return Path(mount) / f"prepare_data_success_{private_ip}"


def read_marker(path: Path) -> MarkerFile | None:
    """Read the marker's file; None without a file. The text of a link, a pipe or a socket is ""."""
    try:
        text, modified_at = read_dated(path, MARKER_BYTES, follow=False)
        return MarkerFile(text.decode("utf-8", "replace"), modified_at)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EINVAL, errno.ENXIO):  # ENXIO: a socket
            return MarkerFile("", None)
        raise


def write_marker(path: Path, marker: Marker) -> None:
    """Write the marker. Raises OSError, and then leaves the earlier file unchanged."""
    write_atomically(path, marker.model_dump_json() + "\n")


def drop_marker(path: Path) -> None:
    """Remove a marker that does not count, since scripts may check only the file's name."""
    path.unlink(missing_ok=True)


def script_digest(script: str) -> str:
    """SHA-256 of the script, which may be a symbolic link. Raises OSError if it cannot be read."""
    text = read_regular(Path(script), SCRIPT_BYTES + 1, follow=True)
    if len(text) > SCRIPT_BYTES:
        raise OSError(errno.EFBIG, f"the script is larger than {SCRIPT_BYTES >> 20} MiB", script)
    return hashlib.sha256(text).hexdigest()


class RunScript(NodeStep):
    """Step that runs the script and writes the marker. If the marker cannot be written, the try has failed."""

    name, needs = "prepare-data", (MountVolume,)

    async def check(self) -> Condition:
        if (result := self.run.prepare_result) is not None:
            return DONE if result.prepared else FAILED
        if self.run.configured.config.prepare_script is None:
            return DONE
        try:
            state = await marker_state(self.run)
        except OSError as error:
            return pending(_describe(error, Path(self.run.configured.config.prepare_script)))
        return DONE if state.is_complete else pending(state.value)

    async def apply(self) -> None:
        parts, configured = self.run.services.parts, self.run.configured
        alive = report_of(configured.identity, self.run.attempt, "alive", "prepare-data runs")
        async with reporting_alive(parts.reporter.reports, alive, self.run.dependencies.timing):
            self.run.prepare_result = await (await preparation(self.run)).run()


class WriteMarker(NodeStep):
    """Step that writes the marker of a node that has nothing to prepare; otherwise RunScript has written it."""

    name, needs = "marker", (MountVolume,)

    async def check(self) -> Condition:
        if (result := self.run.prepare_result) is not None:
            return DONE if result.prepared else FAILED
        with contextlib.suppress(OSError):
            if (await marker_state(self.run)).is_complete:
                return DONE
        return pending("the marker is written after a successful preparation")

    async def apply(self) -> None:
        self.run.prepare_result = await (await preparation(self.run)).run()


async def preparation(run: Run) -> Preparation:
    """Make the preparation of this run."""
    configured, dependencies = run.configured, run.dependencies
    environment = await process_environment(run)
    return Preparation(
        configured.config,
        configured.identity,
        run.attempt,
        dependencies.layout,
        run.children,
        environment,
        dependencies.timing,
        dependencies.user,
    )


async def marker_state(run: Run) -> MarkerState:
    """State of the marker. Raises OSError if the marker or the script cannot be read."""
    return (await (await preparation(run)).check())[1]


def _describe(error: OSError, path: Path) -> str:
    """Text of an error. `path` is used if the error names no file."""
    return f"{error.strerror}: {error.filename2 or error.filename or path}" if error.strerror else str(error)
