"""One node of a job: prepares the code, waits for the master's address, runs the command, and reports the outcome.

When this program has ended, its caller shuts the machine down.
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
from dyntrain.node_bootstrap.job.bucket import AWS_ERRORS, Bucket, aws_client
from dyntrain.node_bootstrap.job.command import Command, CommandFailed, UserAccount, install_packages, python_of, unpack
from dyntrain.node_bootstrap.job.metadata import Metadata, MetadataMissing
from dyntrain.node_bootstrap.job.output import Output
from dyntrain.node_bootstrap.job.plan import JobPlan

LOOK_SECONDS = 0.2  # pause between checks whether the command has ended
VERDICT_SECONDS = 3.0  # pause between reads of the job's verdict
MINUTE = 60.0  # in seconds
MASTER_SECONDS = 900.0  # longest wait for the master's address
MOST_TRIES = 6  # for reading the plan, and for saving the artifacts
RETRY_SECONDS = 5.0
PATIENCE = 20.0  # between SIGTERM and SIGKILL; a Spot instance has two minutes in all


class Node:
    """One machine of a job, which runs the job's command as one rank.

    `beat` is the time in seconds between signs of life. `retry` is the time in seconds between tries to save artifacts.
    """

    def __init__(
        self,
        bucket: Bucket,
        plan: JobPlan,
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
        self._started_at = time.monotonic()
        self._next_times: dict[str, float] = {}
        self._interruption: Exit | None = None  # set once EC2 takes the machine back
        self._finished = threading.Event()

    def run(self, account: UserAccount) -> Exit:
        """Prepare and run the job's command; returns how the command ended.

        The node sends signs of life until `finish` has ended.
        """
        threading.Thread(target=self._run_periodic_tasks, name="watch", daemon=True).start()
        try:
            search_path = self._prepare_command(account)
            master_address = self._wait_for_master()
            env = deciding.environment(self._plan, os.environ, search_path, self._rank, master_address, account.home)
            self._output.say(f"rank {self._rank} of {self._plan.nodes}, master {master_address}:{self._plan.port}")
            return self._run_command(Command(self._plan.command, self._code, env, account, self._output))
        except (CommandFailed, MetadataMissing) as error:
            return self._failed_exit(str(error))
        except AWS_ERRORS as error:
            return self._failed_exit(f"{type(error).__name__}: {error}")

    def finish(self, own_exit: Exit) -> None:
        """Upload the artifacts, the program's output and the rank's exit to S3.

        If one upload fails, the other uploads are still tried.
        """
        self._output.say(own_exit.reason)
        name, run, rank = self._plan.name, self._plan.run, self._rank
        if own_exit.verdict != files.SUCCEEDED:  # other nodes need not wait until all is saved
            self._try("write the verdict", lambda: self._bucket.write_verdict(own_exit))
        for _ in range(MOST_TRIES):
            if self._try("save artifacts", self._save_artifacts):
                break
            time.sleep(self._retry)
        self._output.close()
        self._try("save the output", lambda: self._bucket.upload(self._output.path, files.output_key(name, run, rank)))
        self._try("write exit.json", lambda: self._bucket.write(files.rank_exit_key(name, run, rank), own_exit.text()))
        if own_exit.verdict == files.SUCCEEDED:
            self._try("write the verdict", lambda: self._write_verdict(own_exit))
        self._finished.set()

    def _write_verdict(self, own_exit: Exit) -> None:
        verdict = deciding.verdict_of(own_exit, self._bucket.exit_codes(self._plan.nodes), self._plan.nodes)
        if verdict is not None:
            self._bucket.write_verdict(verdict)

    def _prepare_command(self, account: UserAccount) -> str:
        """Download the code and the artifacts, and install the packages; returns the PATH for the command."""
        archive = self._folder / "code.tar.gz"
        self._bucket.download(files.code_key(self._plan.name), archive)
        unpack(archive, self._code)
        self._artifacts.mkdir(parents=True, exist_ok=True)
        if self._plan.resumed:
            self._output.say(f"{self._bucket.fetch_artifacts(self._artifacts)} artifacts of earlier runs are restored")
        account.set_owner(self._code)
        search_path = self._plan.env.get("PATH") or os.environ.get("PATH", os.defpath)
        if self._plan.requirements:
            venv_folder = self._folder / "venv"
            venv_folder.mkdir(exist_ok=True)
            account.set_owner(venv_folder)
            requirements = self._code / self._plan.requirements
            install_packages(python_of(search_path), venv_folder, requirements, self._plan.env, account, self._output)
            search_path = os.pathsep.join([str(venv_folder / "bin"), search_path])
        return search_path

    def _wait_for_master(self) -> str:
        deadline = time.monotonic() + MASTER_SECONDS
        while True:
            try:
                return self._metadata.wait_for("tags/instance/MASTER_ADDR", 5.0)
            except MetadataMissing:
                if time.monotonic() >= deadline:
                    raise
            verdict = self._bucket.verdict()
            if verdict is not None:
                raise CommandFailed(f"the job has ended before the command began: {verdict.reason}")

    def _run_command(self, command: Command) -> Exit:
        while True:
            if (code := command.exit_code()) is not None:
                command.terminate(0.0)
                return deciding.exit_of_command(self._rank, code, time.time(), deciding.last_lines(self._output.tail()))
            reason_to_end: Exit | None = None
            try:
                reason_to_end = self._reason_to_end()
            except AWS_ERRORS as error:
                self._log_error("check the job", error)
            if reason_to_end is not None:
                self._output.say(f"{reason_to_end.reason}; the command is ended")
                # Before the command ends: its end makes other ranks fail, and the first verdict counts.
                self._try("write the verdict", partial(self._bucket.write_verdict, reason_to_end))
                command.terminate(PATIENCE)
                return reason_to_end
            time.sleep(LOOK_SECONDS)

    def _reason_to_end(self) -> Exit | None:
        """Return an `Exit` with the reason why the command must end now, or None if the command may continue."""
        uptime = time.monotonic() - self._started_at
        if uptime > self._plan.seconds:
            return self._failed_exit(f"the job has taken more than its {self._plan.seconds / 3600:g} hours")
        if self._interruption is not None:
            return self._interruption
        if self._is_due("verdict", VERDICT_SECONDS):
            verdict = self._bucket.verdict()
            if verdict is not None and verdict.verdict != files.SUCCEEDED:
                return verdict._replace(rank=self._rank, code=None, at=time.time(), tail="")
        if self._is_due("minute", MINUTE):
            self._try("save artifacts", self._save_artifacts)
            last_seen, ended_ranks = self._bucket.signs_of_life()
            lost_rank_exit = deciding.exit_of_lost_rank(
                self._rank, self._plan.nodes, last_seen, ended_ranks, uptime, time.time()
            )
            if lost_rank_exit is not None:
                self._bucket.write_verdict(lost_rank_exit)
                return lost_rank_exit._replace(rank=self._rank)
        return None

    def _run_periodic_tasks(self) -> None:
        """Send signs of life and watch for a Spot interruption, also while packages are installed."""
        verdict_sent = False
        while True:
            if self._is_due("alive", self._beat):
                self._try("send the sign of life", self._send_sign_of_life)
            try:
                if self._interruption is None and self._metadata.get("spot/instance-action") is not None:
                    self._interruption = deciding.exit_of_interrupted_rank(self._rank, time.time())
            except MetadataMissing as error:
                self._output.say(f"no answer from the metadata service: {error}")
            interruption = self._interruption
            if interruption is not None and not verdict_sent:
                verdict_sent = self._try("write the verdict", partial(self._bucket.write_verdict, interruption))
            if self._finished.wait(min(VERDICT_SECONDS, self._beat)):
                return

    def _is_due(self, task: str, seconds: float) -> bool:
        """Whether `task`, repeated every `seconds`, is due now."""
        now = time.monotonic()
        if now < self._next_times.get(task, 0.0):
            return False
        self._next_times[task] = now + seconds
        return True

    def _send_sign_of_life(self) -> None:
        self._bucket.write(files.alive_key(self._plan.name, self._plan.run, self._rank), f"{time.time()}\n")

    def _save_artifacts(self) -> None:
        saved_count = self._bucket.save_artifacts(self._artifacts)
        if saved_count:
            self._output.say(f"{saved_count} artifacts saved")

    def _failed_exit(self, reason: str) -> Exit:
        log_tail = deciding.last_lines(self._output.tail())
        return Exit(FAILED, self._rank, None, f"rank {self._rank}: {reason}", time.time(), log_tail)

    def _try(self, task: str, action: Callable[[], None]) -> bool:
        try:
            action()
        except AWS_ERRORS as error:
            self._log_error(task, error)
            return False
        return True

    def _log_error(self, task: str, error: Exception) -> None:
        self._output.say(f"cannot {task}: {type(error).__name__}: {error}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="dyntrain-job")
    for option in ("name", "run", "bucket", "region"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--root", type=Path, default=Path("/"))
    parser.add_argument("--user")
    options = parser.parse_args()
    folder = options.root / "opt" / "dyntrain-job"
    folder.mkdir(parents=True, exist_ok=True)
    metadata = Metadata()
    rank = int(metadata.wait_for("ami-launch-index", MINUTE))
    log_path = options.root / "var" / "log" / "dyntrain-job" / "output.log"
    output = Output(log_path, files.log_stream(options.name, rank), partial(aws_client, "logs", options.region))
    bucket = Bucket(aws_client("s3", options.region), options.bucket, options.name, options.run)
    plan = None
    for _ in range(MOST_TRIES):
        try:
            plan_text = bucket.read(files.plan_key(options.name, options.run))
            plan = None if plan_text is None else deciding.plan_of(plan_text)
            break
        except AWS_ERRORS as error:
            output.say(f"the plan cannot be read: {error}")
            time.sleep(RETRY_SECONDS)
    if plan is None:
        reason = f"rank {rank}: no plan at s3://{options.bucket}/{files.plan_key(options.name, options.run)}"
        output.say(reason)
        output.close()
        bucket.write_verdict(Exit(FAILED, rank, None, reason, time.time()))
        return 1
    node = Node(bucket, plan, rank, metadata, output, folder)
    own_exit = node.run(UserAccount(options.user))
    node.finish(own_exit)
    return 0 if own_exit.code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
