"""Runs the user's prepare-data script until it succeeds, or its attempts are used up."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from controller.contract import NodeConfig
from node_bootstrap.identity import Identity
from node_bootstrap.layout import Layout
from node_bootstrap.marker import Marker, Verdict, judge
from node_bootstrap.marker_file import drop_marker, marker_path, read_marker, script_digest, write_marker
from node_bootstrap.pacing import Timing
from node_bootstrap.processes import Children

KEPT_LOGS = 5
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    prepared: bool
    tries: int  # 0: a marker of this instance and script was there, or there is nothing to prepare
    reason: str


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
    config: NodeConfig
    identity: Identity
    attempt: int
    layout: Layout
    children: Children
    environment: Mapping[str, str]
    timing: Timing

    async def look(self) -> tuple[str | None, Verdict]:
        """The script's SHA-256 (None: there is nothing to prepare), and whether the marker spares the node the preparation.

        Raises OSError, also for a script that is not the one in `prepare_sha256`.
        """
        script = self.config.prepare_script
        digest = await asyncio.to_thread(script_digest, script) if script is not None else None
        if script is not None and self.config.prepare_sha256 not in (None, digest):
            raise OSError(f"the script's SHA-256 is {digest}, not the one in the field prepare_sha256: it is not run")
        return digest, judge(await asyncio.to_thread(read_marker, self._marker_path), self.identity.instance_id, digest)

    async def run(self) -> Outcome:
        """Never raises for what the script does; the reason of a failure ends with the tail of its output."""
        path = self._marker_path
        if self.config.prepare_script is None:
            await asyncio.to_thread(write_marker, path, self._marker(None))
            return Outcome(True, 0, "nothing to prepare")
        await asyncio.to_thread(self._drop_old_logs)
        reason = ""
        for number in range(1, self.config.prepare_attempts + 1):
            if number > 1:
                await asyncio.sleep(self.timing.prepare.delay(number - 2))
            try:
                # 1. gather: the script may be mended between two tries
                digest, verdict = await self.look()
                # 2. decide
                if verdict is Verdict.COUNTS:
                    return Outcome(True, number - 1, verdict.value)
                log.info("preparing", extra={"try": number, "reason": verdict.value})
                # 3. apply
                await asyncio.to_thread(drop_marker, path)
                reason = await self._try(self.config.prepare_script, number)
                if not reason:
                    await asyncio.to_thread(write_marker, path, self._marker(digest))
                    return Outcome(True, number, f"prepared at try {number}")
            except OSError as error:
                reason = f"{error.strerror}: {error.filename or path}" if error.strerror else str(error)
            log.warning("prepare-data failed", extra={"try": number, "of": self.config.prepare_attempts, "reason": reason})
        return Outcome(False, self.config.prepare_attempts, f"prepare-data failed {self.config.prepare_attempts} times; the last: {reason}"[:2000])

    async def _try(self, script: str, number: int) -> str:
        """Run it once; the reason why it failed, or nothing."""
        path = self.layout.prepare_log(self.attempt)
        started, clock = time.time(), time.monotonic()
        child = await self.children.start(
            "prepare-data", command_of(script), log_path=path, environment=self.environment, cwd=self.config.mount, user=self.config.prepare_user
        )
        code: int | None = None
        try:
            async with asyncio.timeout(self.config.prepare_timeout_seconds):
                code = await child.wait()
        except TimeoutError:
            pass
        finally:
            await child.stop()  # also what a finished script left running
        reason = explain(code, self.config.prepare_timeout_seconds)
        if reason and (output := child.last_words()):
            reason = f"{reason}; its last output:\n{output}"
        self._record(Try(self.attempt, number, started, round(time.monotonic() - clock, 3), code, reason))
        return reason

    def _drop_old_logs(self) -> None:
        """Those of attempts before the last `KEPT_LOGS`: each start of the node makes another."""
        for path in self.layout.logs.glob("prepare-*"):
            attempt = path.name.removeprefix("prepare-").partition(".")[0]
            if attempt.isdecimal() and int(attempt) <= self.attempt - KEPT_LOGS:
                path.unlink(missing_ok=True)

    @property
    def _marker_path(self) -> Path:
        return marker_path(self.config.mount, self.identity.private_ip)

    def _record(self, entry: Try) -> None:
        with self.layout.tries.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(entry)) + "\n")

    def _marker(self, digest: str | None) -> Marker:
        return Marker(instance_id=self.identity.instance_id, attempt=self.attempt, script_sha256=digest, exit_code=0, at=time.time())


def command_of(script: str) -> list[str]:
    """A Python script runs with our own interpreter, anything else by itself."""
    return [sys.executable, script] if Path(script).suffix == ".py" else [script]


def explain(code: int | None, timeout: float) -> str:
    """Why a run counts as failed; empty for success. `code` is None when it was killed at the timeout."""
    if code is None:
        return f"still running after {timeout:g} s, killed with its children"
    if code == 0:
        return ""
    if code < 0:
        return f"killed by {signal.Signals(-code).name if -code in set(signal.Signals) else f'signal {-code}'}"
    return {126: "cannot be executed (exit code 126)", 127: "not found (exit code 127)"}.get(code, f"exit code {code}")
