"""Runs a node of a job that a person launched with `dyntrain launch`: the same supervisor as on EC2, without AWS.

    python -m dyntrain.node_bootstrap launched      (started by `dyntrain launch`, here or through ssh)

The launcher starts this command by name, so the package `training`, which contains the launcher, need not import
`node_bootstrap`. A host needs only the wheel of dyntrain.

The launcher writes one line (`NodeSpec`) to standard input, which stays open. When standard input is closed, the node
ends. If this process dies, the reaper, which is its parent process, kills the child processes that remain
(`dyntrain.training.host.reaper`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import FAULT, RETIRED, TRY_AGAIN
from dyntrain.node_bootstrap.host.logs import log_lines_to_stderr
from dyntrain.node_bootstrap.host.processes import Children, Program
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.reports.config import Access
from dyntrain.node_bootstrap.supervision.base_duties import BaseDuties, return_at_once, wait_forever
from dyntrain.node_bootstrap.supervision.control_channel import ControlChannel
from dyntrain.node_bootstrap.supervision.group import PsGroup
from dyntrain.node_bootstrap.supervision.supervisor import SupervisedNode, Supervisor
from dyntrain.node_bootstrap.supervision.wiring import (
    make_isolation,
    make_worker,
    own_programs_first,
    path_of_slot,
    worker_program,
)
from dyntrain.training.dt_scripts import environment
from dyntrain.training.protocol.clocks import Clocks
from dyntrain.training.protocol.node_spec import NodeSpec

MAX_LINE_BYTES = 256 * 1024
CONNECTION_CHECK_SECONDS = 0.5
BLANK_COMMAND = (sys.executable, "-m", "dyntrain.training.engine.blank")
log = logging.getLogger(__name__)


class NoController:
    """Stands in for the controller on a node without a controller: all reports of the node's state are dropped."""

    def report(self, outcome: str, reason: str, deadline: float | None = None) -> None:
        pass

    def set_listed(self, listed: bool) -> None:
        pass


async def run_launched(spec: NodeSpec, folder: Path, timing: Timing) -> int:
    """Run the node that `spec` describes; returns the exit code. On return all processes of the node have ended.

    The exit code is RETIRED if the job no longer needs this host, and TRY_AGAIN if no coordinator was connected for too
    long.
    """
    job_timeouts = Clocks(spec.liveness_seconds, spec.progress_seconds)
    children = Children(str(folder), 1)
    try:
        channel = ControlChannel(spec.endpoint.cluster, lambda: _access_of(spec), timing, job_timeouts)
        supervisor = build_supervisor(spec, folder, channel, children, timing, job_timeouts)
        supervisor_task = asyncio.create_task(supervisor.run())
        retirement_task = asyncio.create_task(supervisor.until_retired())
        departure_task = asyncio.create_task(_wait_for_departure(supervisor))
        abandonment_task = asyncio.create_task(_wait_for_abandonment(channel, job_timeouts.progress))
        tasks = (supervisor_task, retirement_task, departure_task, abandonment_task)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if supervisor_task.done():
                supervisor_task.result()  # the supervisor ends only with an error
            if abandonment_task.done():
                log.error("no coordinator at %s for %.0f s", spec.endpoint.url, job_timeouts.progress)
                return TRY_AGAIN
            await supervisor.retire(
                retirement_task.result() if retirement_task.done() else "the host was removed from the job"
            )
            return RETIRED
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        await children.stop_all(timing.retire_grace_seconds)


def build_supervisor(
    spec: NodeSpec, folder: Path, channel: ControlChannel, children: Children, timing: Timing, clocks: Clocks
) -> Supervisor:
    """Build the supervisor of the host's first worker, which also runs the supervisors of the host's other workers.

    All processes of the node write to this process's output, which the launcher's terminal shows.
    """
    other_supervisors = []
    for slot in range(1, spec.slots):
        slot_channel = ControlChannel(spec.endpoint.cluster, lambda: _access_of(spec), timing, clocks)
        other_supervisors.append(
            _make_supervisor_of_slot(spec, folder, slot_channel, children, timing, clocks, slot, ())
        )
    return _make_supervisor_of_slot(spec, folder, channel, children, timing, clocks, 0, other_supervisors)


def _make_supervisor_of_slot(
    spec: NodeSpec,
    folder: Path,
    channel: ControlChannel,
    children: Children,
    timing: Timing,
    clocks: Clocks,
    slot: int,
    other_supervisors: Sequence[Supervisor],
) -> Supervisor:
    no_controller, control_file = NoController(), path_of_slot(folder / "control.json", slot)
    identity = Identity(
        instance_id=spec.instance_id,
        private_ip=spec.private_ip,
        region="",
        cluster=spec.endpoint.cluster,
        base=spec.base,
        master=False,
        tags={},
    )
    # `python` in a launch command is the Python that has MXNet, in every shell
    variables = {**spec.worker_environment, **own_programs_first(spec.worker_environment)}
    variables = environment(variables, os.environ) if spec.dt_scripts else variables
    training_program = Program(spec.command, variables, None, str(Path.cwd()))
    worker = make_worker(
        worker_program(training_program, control_file), children, channel, no_controller, timing, spec.warm_spares
    )
    isolation = make_isolation(worker, _always_wanted, no_controller, clocks.patience, timing)
    base_duties = None
    if spec.servers and not slot:
        # explicit address: ps-lite would otherwise pick an interface itself
        blank_program = Program(BLANK_COMMAND, {**spec.server_environment, "DMLC_NODE_HOST": spec.private_ip}, None)
        ps_group = PsGroup(blank_program, spec.servers + 1, spec.private_ip, children, channel.send, timing)
        base_duties = BaseDuties(return_at_once if spec.base else wait_forever, ps_group, all_serve=not spec.base)
    supervised_node = SupervisedNode(identity, 1, spec.mount, control_file, timing, clocks, slot=slot, slots=spec.slots)
    return Supervisor(
        supervised_node, channel, no_controller, worker, isolation, base_duties, other_supervisors=other_supervisors
    )


async def _access_of(spec: NodeSpec) -> Access | None:
    return Access(spec.endpoint, spec.token)


async def _always_wanted() -> bool:
    """Return True, since the coordinator of a launched job itself shuts down each node that it no longer needs."""
    return True


async def _wait_for_departure(supervisor: Supervisor) -> None:
    """Wait until the host is removed from the job and all workers of the host have left.

    On EC2, the controller waits until the workers of a node have left.
    """
    supervisors = [supervisor, *supervisor.other_supervisors]
    while not all(
        supervisor_of_slot.unlisted.is_set() and supervisor_of_slot.worker.exited_cleanly.is_set()
        for supervisor_of_slot in supervisors
    ):
        for supervisor_of_slot in supervisors:
            await supervisor_of_slot.unlisted.wait()
            await supervisor_of_slot.worker.exited_cleanly.wait()


async def _wait_for_abandonment(channel: ControlChannel, seconds: float) -> None:
    """Wait until no coordinator has been connected for `seconds` seconds.

    If the launcher dies, standard input may stay open, but the coordinator is no longer connected.
    """
    last_connected_at = now = time.monotonic()
    while now - last_connected_at <= seconds:
        await asyncio.sleep(CONNECTION_CHECK_SECONDS)
        now = time.monotonic()
        last_connected_at = now if channel.connected else last_connected_at


async def _run_node_of_stdin(folder: Path) -> int:
    event_loop, stdin_reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await event_loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin_reader), sys.stdin)
    # the launcher handles SIGINT; the children would inherit SIG_IGN
    event_loop.add_signal_handler(signal.SIGINT, lambda: None)
    stop_event = asyncio.Event()
    event_loop.add_signal_handler(signal.SIGTERM, stop_event.set)  # sent by the parent process, or because it has died
    spec_line = await stdin_reader.readline()
    if not spec_line:
        return RETIRED
    node_task = asyncio.create_task(run_launched(NodeSpec.model_validate_json(spec_line), folder, Timing()))
    stop_tasks = [asyncio.create_task(stdin_reader.read()), asyncio.create_task(stop_event.wait())]
    await asyncio.wait([node_task, *stop_tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in (node_task, *stop_tasks):
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await node_task
    return RETIRED


def run(folder: Path) -> int:
    """Run the node that standard input describes; returns the exit code.

    The private `folder` for control files is removed on return.
    """
    log_lines_to_stderr()
    try:
        return asyncio.run(_run_node_of_stdin(folder))
    except Exception:
        log.exception("the node failed")
        return FAULT
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # the parent process may have died without removing it
