"""Runs the user's prepare-data script until it succeeds or has failed `prepare_attempts` times.

A successful script leaves the marker `prepare_data_success_<private-ip>` on the shared volume. If a valid marker
exists, later runs of the node's program skip the script.
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
from dyntrain.node_bootstrap.core.marker import Marker, MarkerFile, MarkerState, judge_marker
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.core.plan import DONE, FAILED, StepCondition, pending
from dyntrain.node_bootstrap.host.files import read_regular_file, read_with_modification_time, write_atomically
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.processes import Children, Program, explain_exit
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.reports.alive import report_of, reporting_alive
from dyntrain.node_bootstrap.steps.environment import process_environment
from dyntrain.node_bootstrap.steps.run import NodeStep, PrepareResult, ProgramRun
from dyntrain.node_bootstrap.steps.volume import MountVolume

KEPT_LOGS = 5  # number of log files of prepare-data that are kept
MARKER_BYTES = 64 * 1024  # size limit of a marker file
SCRIPT_BYTES = 64 * 1024 * 1024  # size limit of the prepare-data script
LEFT_RUNNING_MESSAGE = (
    "prepare-data ended with exit code 0 and left processes running, which were ended; let it wait for them, or run a "
    "daemon as a systemd unit"
)
LEFT_RUNNING_CHARACTERS = 700  # length to which the message is shortened
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PrepareTry:
    """One run of the prepare-data script, as recorded in the state directory."""

    attempt: int  # number of the run of the node's program
    number: int  # number of this run of the script
    started_at: float  # Unix time
    seconds: float  # how long the script ran
    exit_code: int | None  # None: the script was killed at its time limit
    reason: str  # why the script failed; "" after success


@dataclass(frozen=True)
class Preparation:
    """Runs the prepare-data script of this node, and reads and writes its marker."""

    config: NodeConfig
    identity: Identity
    attempt: int  # number of the run of the node's program
    layout: Layout
    children: Children
    environment: Mapping[str, str]  # variables of the script
    timing: Timing
    user: str | None = None  # used if the configuration names no user; None: this process's user

    async def check_script_and_marker(self) -> tuple[str | None, MarkerState]:
        """Return the SHA-256 of the prepare-data script (None: there is no script), and the marker's state.

        Raises OSError, also if the script's SHA-256 differs from the configuration's field `prepare_sha256`.
        """
        script = self.config.prepare_script
        script_sha256 = await asyncio.to_thread(script_digest, script) if script is not None else None
        if script is not None and self.config.prepare_sha256 not in (None, script_sha256):
            raise OSError(
                f"the script is not run: its SHA-256 is {script_sha256}, not the one in the field prepare_sha256"
            )
        marker_file = await asyncio.to_thread(read_marker, self.marker_path)
        return script_sha256, judge_marker(
            marker_file, self.identity.instance_id, script_sha256, self.identity.launched_at
        )

    async def run(self) -> PrepareResult:
        """Run the prepare-data script until it succeeds, at most `prepare_attempts` times.

        If a valid marker exists, the script is not run. If all runs fail, the result contains the script's last output.
        """
        marker_path = self.marker_path
        await asyncio.to_thread(self._remove_old_logs)
        reason, script_sha256 = "", None
        for try_number in range(1, self.config.prepare_attempts + 1):
            if try_number > 1:
                await asyncio.sleep(self.timing.prepare_backoff.delay(try_number - 2))
            try:
                if self.config.prepare_script is None:
                    await asyncio.to_thread(write_marker, marker_path, self.make_marker(None))
                    return PrepareResult(True, 0, "nothing to prepare")
                # 1. gather: the script may be repaired between two tries
                script_sha256, marker_state = await self.check_script_and_marker()
                # 2. decide
                if (
                    marker_result := await self._marker_result(script_sha256, marker_state, try_number - 1)
                ) is not None:
                    return marker_result
                log.info("preparing", extra={"try": try_number, "reason": marker_state.value})
                # 3. apply
                await asyncio.to_thread(remove_marker, marker_path)
                reason = await self._run_script(self.config.prepare_script, try_number)
                if not reason:
                    await asyncio.to_thread(write_marker, marker_path, self.make_marker(script_sha256))
                    return PrepareResult(True, try_number, f"prepared at try {try_number}", script_sha256 or "")
            except OSError as error:
                reason, script_sha256 = _describe_error(error, marker_path), await self.current_digest()
            log.warning(
                "prepare-data failed", extra={"try": try_number, "of": self.config.prepare_attempts, "reason": reason}
            )
        return PrepareResult(
            False,
            self.config.prepare_attempts,
            f"prepare-data failed {self.config.prepare_attempts} times; the last: {reason}"[:2000],
            script_sha256 or "",
        )

    async def wait_until_repaired(self, failed: PrepareResult) -> PrepareResult | None:
        """Wait until a person marks the failed node as prepared, or changes the script.

        Returns None if the script was changed. If the shared volume cannot be read, reading the volume is tried again
        later.
        """
        while True:
            with contextlib.suppress(OSError):
                script_sha256, marker_state = await self.check_script_and_marker()
                if (marker_result := await self._marker_result(script_sha256, marker_state, failed.tries)) is not None:
                    return marker_result
                if script_sha256 is not None and script_sha256 != failed.script:
                    log.info("prepare-data has changed: it is run again", extra={"script": script_sha256})
                    return None
            await asyncio.sleep(self.timing.notice_poll_seconds)

    async def current_digest(self) -> str | None:
        """Return the SHA-256 of the prepare-data script, or None if the script does not exist or cannot be read.

        The SHA-256 is returned even if the configuration forbids to run a script with this SHA-256.
        """
        if self.config.prepare_script is None:
            return None
        with contextlib.suppress(OSError):
            return await asyncio.to_thread(script_digest, self.config.prepare_script)
        return None

    async def _marker_result(
        self, script_sha256: str | None, marker_state: MarkerState, tries: int
    ) -> PrepareResult | None:
        """Return the result of the preparation if a valid marker exists, else None.

        If a person made a valid empty marker, it is replaced by a marker with content. Raises OSError.
        """
        if marker_state is MarkerState.BY_HAND:
            await asyncio.to_thread(write_marker, self.marker_path, self.make_marker(script_sha256, by_hand=True))
            log.warning(
                "a person marked this node as prepared",
                extra={"marker": str(self.marker_path), "reason": marker_state.value},
            )
        elif not marker_state.is_complete:
            return None
        return PrepareResult(True, tries, marker_state.value, script_sha256 or "")

    async def _run_script(self, script: str, try_number: int) -> str:
        """Run the prepare-data script once; returns why the script failed, or "" if it succeeded."""
        log_path = self.layout.prepare_log(self.attempt)
        started_at, started_monotonic = time.time(), time.monotonic()
        script_user = self.config.prepare_user or self.user
        program = Program(script_command(script), self.environment, log_path, self.config.mount, user=script_user)
        exit_code, child = await self.children.run(
            "prepare-data", program, self.config.prepare_timeout_seconds, exclusive=True
        )
        reason = explain_exit(exit_code, self.config.prepare_timeout_seconds)
        if not reason and child.still_running:
            reason = f"{LEFT_RUNNING_MESSAGE}: {', '.join(child.still_running)}"[:LEFT_RUNNING_CHARACTERS]
        if reason and (output := child.last_output()):
            reason = f"{reason}; its last output:\n{output}"
        self._record_try(
            PrepareTry(
                self.attempt, try_number, started_at, round(time.monotonic() - started_monotonic, 3), exit_code, reason
            )
        )
        return reason

    def _remove_old_logs(self) -> None:
        """Remove all but the last `KEPT_LOGS` log files of prepare-data.

        Each run of the node's program makes one log file.
        """
        for log_path in self.layout.log_folder.glob("prepare-*"):
            attempt_text = log_path.name.removeprefix("prepare-").partition(".")[0]
            if attempt_text.isdecimal() and int(attempt_text) <= self.attempt - KEPT_LOGS:
                log_path.unlink(missing_ok=True)

    @property
    def marker_path(self) -> Path:
        return marker_path(self.config.mount, self.identity.private_ip)

    def _record_try(self, prepare_try: PrepareTry) -> None:
        with self.layout.prepare_tries_file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(prepare_try)) + "\n")

    def make_marker(self, script_sha256: str | None, *, by_hand: bool = False) -> Marker:
        return Marker(
            instance_id=self.identity.instance_id,
            attempt=self.attempt,
            script_sha256=script_sha256,
            exit_code=0,
            at=time.time(),
            by_hand=by_hand,
        )


def script_command(script: str) -> list[str]:
    """Return the command that runs a script: a `.py` file is run by this process's Python, any other file directly."""
    return [sys.executable, script] if Path(script).suffix == ".py" else [script]


def marker_path(mount: str, private_ip: str) -> Path:
    return Path(mount) / f"prepare_data_success_{private_ip}"


def read_marker(path: Path) -> MarkerFile | None:
    """Return the marker file, or None if there is no such file.

    If `path` is a link, a pipe or a socket, the returned text is empty.
    """
    try:
        content, modified_at = read_with_modification_time(path, MARKER_BYTES, follow=False)
        return MarkerFile(content.decode("utf-8", "replace"), modified_at)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EINVAL, errno.ENXIO):  # ENXIO: a socket
            return MarkerFile("", None)
        raise


def write_marker(path: Path, marker: Marker) -> None:
    """Write `marker` to the file `path`. If OSError is raised, an earlier marker file is unchanged."""
    write_atomically(path, marker.model_dump_json() + "\n")


def remove_marker(path: Path) -> None:
    """Remove an invalid marker, since a user's script may check only whether the marker file exists."""
    path.unlink(missing_ok=True)


def script_digest(script: str) -> str:
    """Return the SHA-256 of the script, which may be a symbolic link. Raises OSError if the script cannot be read."""
    content = read_regular_file(Path(script), SCRIPT_BYTES + 1, follow=True)
    if len(content) > SCRIPT_BYTES:
        raise OSError(errno.EFBIG, f"the script is larger than {SCRIPT_BYTES >> 20} MiB", script)
    return hashlib.sha256(content).hexdigest()


class RunScript(NodeStep):
    """Step that runs the prepare-data script and writes the marker.

    If the marker cannot be written, the run of the script counts as a failure.
    """

    step_name, needed_steps = "prepare-data", (MountVolume,)

    async def check(self) -> StepCondition:
        if (prepare_result := self.run.prepare_result) is not None:
            return DONE if prepare_result.prepared else FAILED
        if self.run.configured_node.config.prepare_script is None:
            return DONE
        try:
            marker_state = await read_marker_state(self.run)
        except OSError as error:
            return pending(_describe_error(error, Path(self.run.configured_node.config.prepare_script)))
        return DONE if marker_state.is_complete else pending(marker_state.value)

    async def carry_out_step(self) -> None:
        ec2_services, configured_node = self.run.services.ec2_services, self.run.configured_node
        sign_of_life = report_of(configured_node.identity, self.run.attempt, "alive", "prepare-data runs")
        async with reporting_alive(ec2_services.reporter.reports, sign_of_life, self.run.dependencies.timing):
            self.run.prepare_result = await (await make_preparation(self.run)).run()


class WriteMarker(NodeStep):
    """Step that writes the marker of a node without a prepare-data script (otherwise, RunScript writes the marker)."""

    step_name, needed_steps = "marker", (MountVolume,)

    async def check(self) -> StepCondition:
        if (prepare_result := self.run.prepare_result) is not None:
            return DONE if prepare_result.prepared else FAILED
        with contextlib.suppress(OSError):
            if (await read_marker_state(self.run)).is_complete:
                return DONE
        return pending("the marker is written after a successful preparation")

    async def carry_out_step(self) -> None:
        self.run.prepare_result = await (await make_preparation(self.run)).run()


async def make_preparation(run: ProgramRun) -> Preparation:
    """Make the `Preparation` from the configuration, identity and environment of `run`."""
    configured_node, dependencies = run.configured_node, run.dependencies
    environment = await process_environment(run)
    return Preparation(
        configured_node.config,
        configured_node.identity,
        run.attempt,
        dependencies.layout,
        run.children,
        environment,
        dependencies.timing,
        dependencies.user,
    )


async def read_marker_state(run: ProgramRun) -> MarkerState:
    """Return the state of this node's marker. Raises OSError if the marker or the script cannot be read."""
    return (await (await make_preparation(run)).check_script_and_marker())[1]


def _describe_error(error: OSError, path: Path) -> str:
    """Return an error's text and the file that the error names, or `path` if the error names no file."""
    return f"{error.strerror}: {error.filename2 or error.filename or path}" if error.strerror else str(error)
