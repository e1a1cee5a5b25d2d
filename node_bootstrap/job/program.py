"""One node of a job: makes the code ready, waits for the master's address, runs the command, and tells how it ended.

Whatever happens, the machine is switched off afterwards, by whoever started this program.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from dyntrain.controller.contract import job_files as files
from dyntrain.controller.contract.job_files import FAILED, Exit
from dyntrain.node_bootstrap.job import plan as deciding
from dyntrain.node_bootstrap.job.bucket import PROBLEMS, Bucket, client
from dyntrain.node_bootstrap.job.command import Account, Command, CommandFailed, install, python_of, unpack
from dyntrain.node_bootstrap.job.metadata import Metadata, MetadataMissing
from dyntrain.node_bootstrap.job.output import Output
from dyntrain.node_bootstrap.job.plan import Plan

LOOK_SECONDS = 0.2
VERDICT_SECONDS = 3.0
MINUTE = 60.0
MASTER_SECONDS = 900.0
LAST_TRIES = 6
RETRY_SECONDS = 5.0
PATIENCE = 20.0  # between SIGTERM and SIGKILL; a Spot instance has two minutes in all


class Node:
    """`beat` is how long it may say nothing, `retry` the pause before artifacts are saved again at the end."""

    def __init__(
        self,
        bucket: Bucket,
        plan: Plan,
        rank: int,
        metadata: Metadata,
        output: Output,
        folder: Path,
        beat: float = MINUTE,
        retry: float = RETRY_SECONDS,
    ) -> None:
        self._bucket, self._plan, self._rank, self._metadata = bucket, plan, rank, metadata
        self._output, self._beat, self._retry = output, beat, retry
        self._code = folder / "code"
        self._folder = folder
        self._artifacts = self._code / plan.artifacts
        self._began = time.monotonic()
        self._due: dict[str, float] = {}
        self._taken: Exit | None = None  # EC2 takes the machine back
        self._over = threading.Event()

    def run(self, account: Account) -> Exit:
        """How this node ended, whatever happened. `finish` must follow: until then the node shows that it lives."""
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        try:
            path = self._make_ready(account)
            master = self._wait_for_master()
            env = deciding.environment(self._plan, os.environ, path, self._rank, master, account.home)
            self._output.say(f"rank {self._rank} of {self._plan.nodes}, master {master}:{self._plan.port}")
            return self._attend(Command(self._plan.command, self._code, env, account, self._output))
        except (CommandFailed, MetadataMissing) as error:
            return self._failed(str(error))
        except PROBLEMS as error:
            return self._failed(f"{type(error).__name__}: {error}")

    def finish(self, ended: Exit) -> None:
        """Saves and tells what there is; what cannot be told is no reason to leave the rest untold."""
        self._output.say(ended.reason)
        name, run, rank = self._plan.name, self._plan.run, self._rank
        if ended.verdict != files.SUCCEEDED:  # the others are not to wait until all is saved
            self._try("the verdict", lambda: self._bucket.settle(ended))
        for _ in range(LAST_TRIES):
            if self._try("saving artifacts", self._save):
                break
            time.sleep(self._retry)
        self._output.close()
        self._try(
            "saving the output", lambda: self._bucket.upload(self._output.path, files.output_key(name, run, rank))
        )
        self._try("exit.json", lambda: self._bucket.write(files.rank_exit_key(name, run, rank), ended.text()))
        if ended.verdict == files.SUCCEEDED:
            self._try("the verdict", lambda: self._settle(ended))
        self._over.set()

    def _settle(self, ended: Exit) -> None:
        verdict = deciding.verdict_of(ended, self._bucket.codes(self._plan.nodes), self._plan.nodes)
        if verdict is not None:
            self._bucket.settle(verdict)

    def _make_ready(self, account: Account) -> str:
        """Returns the PATH of the command."""
        archive = self._folder / "code.tar.gz"
        self._bucket.download(files.code_key(self._plan.name), archive)
        unpack(archive, self._code)
        self._artifacts.mkdir(parents=True, exist_ok=True)
        if self._plan.resumed:
            self._output.say(f"{self._bucket.fetch_artifacts(self._artifacts)} artifacts are back in place")
        account.give(self._code)
        path = self._plan.env.get("PATH") or os.environ.get("PATH", os.defpath)
        if self._plan.requirements:
            environment = self._folder / "venv"
            environment.mkdir(exist_ok=True)
            account.give(environment)
            requirements = self._code / self._plan.requirements
            install(python_of(path), environment, requirements, self._plan.env, account, self._output)
            path = os.pathsep.join([str(environment / "bin"), path])
        return path

    def _wait_for_master(self) -> str:
        until = time.monotonic() + MASTER_SECONDS
        while True:
            try:
                return self._metadata.wait_for("tags/instance/MASTER_ADDR", 5.0)
            except MetadataMissing:
                if time.monotonic() >= until:
                    raise
            ended = self._bucket.verdict()
            if ended is not None:
                raise CommandFailed(f"the job has ended before the command began: {ended.reason}")

    def _attend(self, command: Command) -> Exit:
        while True:
            if (code := command.code()) is not None:
                command.end(0.0)
                return deciding.exit_of_command(self._rank, code, time.time(), deciding.last_lines(self._output.tail()))
            over: Exit | None = None
            try:
                over = self._look()
            except PROBLEMS as error:
                self._problem("looking at the job", error)
            if over is not None:
                self._output.say(f"{over.reason}; the command is ended")
                # First: the other ranks fail when this one's command ends, and the first verdict counts.
                self._try("the verdict", partial(self._bucket.settle, over))
                command.end(PATIENCE)
                return over
            time.sleep(LOOK_SECONDS)

    def _look(self) -> Exit | None:
        """Why the command must end now."""
        waited = time.monotonic() - self._began
        if waited > self._plan.seconds:
            return self._failed(f"the job has taken more than its {self._plan.seconds / 3600:g} hours")
        if self._taken is not None:
            return self._taken
        if self._time_for("verdict", VERDICT_SECONDS):
            verdict = self._bucket.verdict()
            if verdict is not None and verdict.verdict != files.SUCCEEDED:
                return verdict._replace(rank=self._rank, code=None, at=time.time(), tail="")
        if self._time_for("minute", MINUTE):
            self._try("saving artifacts", self._save)
            seen, ended = self._bucket.signs_of_life()
            lost = deciding.lost(self._rank, self._plan.nodes, seen, ended, waited, time.time())
            if lost is not None:
                self._bucket.settle(lost)
                return lost._replace(rank=self._rank)
        return None

    def _watch(self) -> None:
        """Beside all else that the node does: packages and files may take longer than others wait for a sign of life,
        or EC2 for the machine.
        """
        told = False
        while True:
            if self._time_for("alive", self._beat):
                self._try("the sign of life", self._alive)
            try:
                if self._taken is None and self._metadata.get("spot/instance-action") is not None:
                    self._taken = deciding.interrupted(self._rank, time.time())
            except MetadataMissing as error:
                self._output.say(f"no answer from the metadata service: {error}")
            taken = self._taken
            if taken is not None and not told:
                told = self._try("the verdict", partial(self._bucket.settle, taken))
            if self._over.wait(min(VERDICT_SECONDS, self._beat)):
                return

    def _time_for(self, what: str, seconds: float) -> bool:
        now = time.monotonic()
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + seconds
        return True

    def _alive(self) -> None:
        self._bucket.write(files.alive_key(self._plan.name, self._plan.run, self._rank), f"{time.time()}\n")

    def _save(self) -> None:
        number = self._bucket.save_artifacts(self._artifacts)
        if number:
            self._output.say(f"{number} artifacts saved")

    def _failed(self, reason: str) -> Exit:
        tail = deciding.last_lines(self._output.tail())
        return Exit(FAILED, self._rank, None, f"rank {self._rank}: {reason}", time.time(), tail)

    def _try(self, doing: str, action: Callable[[], None]) -> bool:
        try:
            action()
        except PROBLEMS as error:
            self._problem(doing, error)
            return False
        return True

    def _problem(self, doing: str, error: Exception) -> None:
        """What S3 refuses is said, and does not end the command: AWS may be away for a while."""
        self._output.say(f"{doing}: {type(error).__name__}: {error}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="dyntrain-job")
    for name in ("name", "run", "bucket", "region"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--root", type=Path, default=Path("/"))
    parser.add_argument("--user")
    given = parser.parse_args()
    folder = given.root / "opt" / "dyntrain-job"
    folder.mkdir(parents=True, exist_ok=True)
    metadata = Metadata()
    rank = int(metadata.wait_for("ami-launch-index", MINUTE))
    log = given.root / "var" / "log" / "dyntrain-job" / "output.log"
    output = Output(log, files.log_stream(given.name, rank), partial(client, "logs", given.region))
    bucket = Bucket(client("s3", given.region), given.bucket, given.name, given.run)
    plan = None
    for _ in range(LAST_TRIES):
        try:
            text = bucket.read(files.plan_key(given.name, given.run))
            plan = None if text is None else deciding.plan_of(text)
            break
        except PROBLEMS as error:
            output.say(f"the plan cannot be read: {error}")
            time.sleep(RETRY_SECONDS)
    if plan is None:
        reason = f"rank {rank}: no plan at s3://{given.bucket}/{files.plan_key(given.name, given.run)}"
        output.say(reason)
        output.close()
        bucket.settle(Exit(FAILED, rank, None, reason, time.time()))
        return 1
    node = Node(bucket, plan, rank, metadata, output, folder)
    ended = node.run(Account(given.user))
    node.finish(ended)
    return 0 if ended.code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
