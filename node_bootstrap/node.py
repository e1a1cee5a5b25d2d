"""The life of a node, from the metadata service to retirement.

Every step looks at what is there and does what is missing, so a life that was cut short goes on with the next one.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from controller.contract import NodeConfig
from node_bootstrap.attempt import next_attempt
from node_bootstrap.config import SsmParameters, read_node_config, read_target, read_wanted
from node_bootstrap.environment import write_environment
from node_bootstrap.errors import AlreadyRunning, GiveUp, Interrupted, MetadataUnavailable, RetryLater
from node_bootstrap.group import BlankProgram, PsGroup
from node_bootstrap.identity import Identity, read_identity
from node_bootstrap.isolation import Isolation
from node_bootstrap.layout import Layout
from node_bootstrap.logs import logging_to
from node_bootstrap.master import CoordinatorKeeper, CoordinatorProgram, coordinator_arguments, nominated_term
from node_bootstrap.metadata import MetadataClient
from node_bootstrap.notices import NoticeWatch
from node_bootstrap.pacing import Timing, spread
from node_bootstrap.ports import Parameters, Reports
from node_bootstrap.prepare import Preparation
from node_bootstrap.processes import Children
from node_bootstrap.promotion import until_base
from node_bootstrap.report import EventBridgeReports, Reporter
from node_bootstrap.shipping import LogShipping
from node_bootstrap.signal import ControlChannel
from node_bootstrap.spares import Program
from node_bootstrap.supervisor import Post, Supervisor
from node_bootstrap.volume import Volume
from node_bootstrap.worker import Worker

RETIRED = 0
FAULT = 70  # the numbers of sysexits.h
TRY_AGAIN = 75
CONFIGURATION = 78
T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setting:
    """What the life depends on, to be replaced piece by piece in tests."""

    layout: Layout
    metadata_url: str
    parameters: Callable[[str], Parameters] = SsmParameters  # called with the region
    reports: Callable[[str], Reports] = EventBridgeReports
    coordinator: Sequence[str] = (sys.executable, "-m", "training.coordinator")
    blank: Sequence[str] = (sys.executable, "-m", "training.engine.blank")
    systemctl: Sequence[str] = ("systemctl",)
    is_mount: Callable[[str], bool] = os.path.ismount
    timing: Timing = field(default_factory=Timing)


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
                life = asyncio.create_task(live(setting, attempt, children, context))
                with stopping_on_signals(life, signals):
                    try:
                        return await life
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


async def live(setting: Setting, attempt: int, children: Children, context: dict[str, Any]) -> int:
    layout, timing = setting.layout, setting.timing
    # 1. who am I, and what is asked of me
    metadata = MetadataClient(setting.metadata_url, timing)
    identity = await persistently(lambda: read_identity(metadata), timing)
    context |= {"cluster": identity.cluster, "instance": identity.instance_id}
    parameters = setting.parameters(identity.region)
    config = await persistently(lambda: read_node_config(parameters, identity.cluster), timing)
    # 2. the host
    if left := await children.sweep_earlier_lives():
        log.warning("killed processes that an earlier life left", extra={"count": left})
    volume = Volume(config.volume, config.mount, layout, children, setting.systemctl, setting.is_mount)
    await persistently(volume.ready, timing)
    variables = write_environment(layout, identity, config) | {"AWS_DEFAULT_REGION": identity.region}
    log.info("node", extra={"base": identity.base, "master": identity.master, "private_ip": identity.private_ip})
    # 3. prepare, report, supervise
    reporter = Reporter(setting.reports(identity.region), timing)
    retired: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    supervisor = Supervisor(Post(identity, attempt, config.mount, layout, timing), reporter, retired)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(reporter.run())
            supervisor.shipping = LogShipping(identity, layout, children)
            tasks.create_task(supervisor.shipping.run())
            tasks.create_task(NoticeWatch(metadata, supervisor.noticed, timing).run())
            outcome = await Preparation(config, identity, attempt, layout, children, variables, timing).run()
            supervisor.report("prepared" if outcome.prepared else "prepare_failed", outcome.reason)
            log.info("prepared" if outcome.prepared else "not prepared", extra={"tries": outcome.tries, "reason": outcome.reason})
            if outcome.prepared:
                channel = wire(supervisor, setting, identity, config, variables, children, parameters, metadata, tasks)
                tasks.create_task(channel.run())
            # without success nobody retires the node: it waits to be terminated
            await supervisor.retire(await retired)
            raise Interrupted("retired")  # ends the tasks
    except* Interrupted:
        pass
    return RETIRED


def wire(
    supervisor: Supervisor,
    setting: Setting,
    identity: Identity,
    config: NodeConfig,
    variables: dict[str, str],
    children: Children,
    parameters: Parameters,
    metadata: MetadataClient,
    tasks: asyncio.TaskGroup,
) -> ControlChannel:
    """Make and start the parts that a prepared node runs; the channel is the last to be started."""
    layout, timing = setting.layout, setting.timing
    channel = ControlChannel(parameters, identity.cluster, supervisor.hello, supervisor, timing)
    supervisor.tell = channel.tell

    worker_variables = {**variables, "ELASTIC_TRAINING_ENABLED": "1", "DYNTRAIN_CONTROL_FILE": str(layout.control_file)}
    supervisor.worker = Worker(
        Program(config.training_cmd, config.mount, worker_variables, layout.logs / "worker.log"),
        children,
        channel.tell,
        lambda reason: supervisor.report("worker_failed", reason),
        lambda: supervisor.report("prepared", "the coordinator had the worker started again"),
        timing,
        config.warm_spares,
    )
    tasks.create_task(supervisor.worker.run())
    worker = supervisor.worker
    supervisor.isolation = Isolation(
        worker.welcomed,
        lambda: worker.suspend(timing.grace),
        lambda: read_wanted(parameters, identity.cluster, identity.instance_id),
        supervisor.isolated,
        config.isolation_seconds,
        timing.ask,
    )
    tasks.create_task(supervisor.isolation.run())

    def serve() -> None:
        stand_as_base(supervisor, setting, identity, config, variables, children, parameters, channel, tasks)

    if identity.base:
        serve()
    else:
        tasks.create_task(until_base(metadata, serve, timing))
    return channel


def stand_as_base(
    supervisor: Supervisor,
    setting: Setting,
    identity: Identity,
    config: NodeConfig,
    variables: dict[str, str],
    children: Children,
    parameters: Parameters,
    channel: ControlChannel,
    tasks: asyncio.TaskGroup,
) -> None:
    """Start what only base nodes have: blank ps-lite processes, and the keeper that runs the coordinator where it is nominated."""
    layout, timing = setting.layout, setting.timing
    listening = {**variables, "DMLC_NODE_HOST": identity.private_ip}  # ps-lite would pick an interface by itself
    program = BlankProgram(setting.blank, listening, layout.logs / "pslite.log")
    supervisor.group = PsGroup(program, config.servers_per_base + 1, identity.private_ip, children, channel.tell, timing)
    tasks.create_task(supervisor.group.run())

    async def term() -> int | None:
        return nominated_term(await read_target(parameters, identity.cluster), identity)

    command = [*setting.coordinator, *coordinator_arguments(identity, config)]
    coordinator = CoordinatorProgram(command, variables, layout.logs / "coordinator.log")
    supervisor.coordinator = CoordinatorKeeper(coordinator, children, term, lambda: channel.connected, timing)
    tasks.create_task(supervisor.coordinator.run())
    tasks.create_task(supervisor.coordinator_finished())


async def persistently(step: Callable[[], Awaitable[T]], timing: Timing) -> T:
    """Repeat a step that says RetryLater, `Timing.setup_tries` times in all; the last error is the caller's.

    What the metadata client could not get in its own tries is not tried again.
    """
    for tries in range(timing.setup_tries - 1):
        try:
            return await step()
        except MetadataUnavailable:
            raise
        except RetryLater as error:
            log.warning(str(error), extra={"try": tries + 1, "of": timing.setup_tries})
        await asyncio.sleep(spread(timing.setup.delay(tries), random.random()))
    return await step()


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
def stopping_on_signals(life: asyncio.Task[int], signals: list[int]) -> Iterator[None]:
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
