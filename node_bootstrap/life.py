"""One life of the bootstrap: looks what is there, and carries out the first step that is left, until none is (see `plan`)."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import random
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from node_bootstrap.config import clocks_of, read_node_config
from node_bootstrap.environment import environment_files, environment_stands, variables, write_environment
from node_bootstrap.errors import Interrupted, InvalidConfiguration, MetadataUnavailable, RetryLater, ServiceUnavailable
from node_bootstrap.gpus import count_gpus
from node_bootstrap.identity import Identity, read_identity
from node_bootstrap.marker import Verdict
from node_bootstrap.metadata import MetadataClient
from node_bootstrap.notices import NoticeWatch
from node_bootstrap.pacing import Timing, spread
from node_bootstrap.plan import Observed, Planned, Step, done, plan
from node_bootstrap.prepare import Outcome, Preparation
from node_bootstrap.processes import Children
from node_bootstrap.report import Reporter
from node_bootstrap.setting import Setting
from node_bootstrap.shipping import LogShipping
from node_bootstrap.supervisor import Post, Supervisor
from node_bootstrap.volume import Volume
from node_bootstrap.wiring import Ground, wire

HOST = frozenset({Step.SWEEP, Step.IDENTITY, Step.CONFIG, Step.VOLUME, Step.ENVIRONMENT, Step.PACKAGE})  # before anything else may run
T = TypeVar("T")
log = logging.getLogger(__name__)


class Life:
    """`context` is filled with what each log line should carry."""

    def __init__(self, setting: Setting, attempt: int, children: Children, context: dict[str, Any]) -> None:
        self._setting, self._attempt, self._children, self._context = setting, attempt, children, context
        self._metadata = MetadataClient(setting.metadata_url, setting.timing)
        self._identity: Identity | None = None
        self._ground: Ground | None = None
        self._gpus: int | None = None
        self._outcome: Outcome | None = None
        self._swept = self._stands = self._reported = self._signalled = self._retired = self._said = False

    async def run(self) -> None:
        """To the node's retirement. Raises NodeError when the host cannot be made ready."""
        # 1. the host
        timing = self._setting.timing
        while (step := (await self._left())[0].step) in HOST:
            await persistently(lambda step=step: self._carry_out(step), timing)  # type: ignore[misc]
        self._stands = True
        # 2. prepare, report, signal, supervise
        ground = self._known()
        identity = ground.identity
        log.info("node", extra={"base": identity.base, "master": identity.master, "private_ip": identity.private_ip})
        reporter = Reporter(self._setting.reports(identity.region), timing)
        retired: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        post = Post(identity, self._attempt, ground.config.mount, self._setting.layout, timing, clocks_of(ground.config))
        supervisor = Supervisor(post, reporter, retired)
        supervisor.shipping = LogShipping(identity, self._setting.layout, self._children)
        try:
            async with asyncio.TaskGroup() as tasks:
                for part in (reporter, supervisor.shipping, NoticeWatch(self._metadata, supervisor.noticed, timing)):
                    tasks.create_task(part.run())
                tasks.create_task(self._children.keep_logs_short(timing.logs))
                while left := await self._left():
                    await self._serve(left[0].step, supervisor, retired, tasks)
                raise Interrupted("retired")  # ends the tasks
        except* Interrupted:
            pass

    async def get_acquainted(self) -> None:
        """Only read what the rest of the plan is derived from."""
        for step in (Step.IDENTITY, Step.CONFIG):
            await persistently(lambda step=step: self._do(step), self._setting.timing)  # type: ignore[misc]

    async def observe(self) -> Observed:
        """Changes nothing. Once the host was found ready it is not looked at again."""
        if self._ground is None:
            return Observed(swept=self._swept, identity=self._identity is not None)
        volume = self._stands or await self._volume_is_usable()
        return Observed(
            swept=self._swept,
            identity=True,
            config=True,
            volume=volume,
            environment=self._stands or environment_stands(await self._environment()),
            package=self._stands or not self._missing_packages(),
            scripted=self._ground.config.prepare_script is not None,
            marker=await self._marker() if volume else None,
            failed=self._outcome is not None and not self._outcome.prepared,
            reported=self._reported,
            signalled=self._signalled,
            retired=self._retired,
        )

    async def _left(self) -> tuple[Planned, ...]:
        left = plan(await self.observe())
        if self._ground is not None and not self._said:
            self._said = True
            found = {"done": [step.value for step in done(left)], "left": {planned.step.value: planned.reason.value for planned in left}}
            log.info("looked what is left to do", extra=found)
        return left

    async def _carry_out(self, step: Step) -> None:
        await self._do(step)
        if (await self._left())[0].step is step:
            raise ServiceUnavailable(f"the step {step.value} was carried out, and what it makes is not there")

    async def _do(self, step: Step) -> None:
        """A step of HOST. Raises NodeError or OSError."""
        if step is Step.SWEEP:
            if left := await self._children.sweep_earlier_lives():
                log.warning("killed processes that an earlier life left", extra={"count": left})
            self._swept = True
        elif step is Step.IDENTITY:
            self._identity = await read_identity(self._metadata)
            self._context |= {"cluster": self._identity.cluster, "instance": self._identity.instance_id}
        elif step is Step.CONFIG and self._identity is not None:
            parameters = self._setting.parameters(self._identity.region)
            config = await read_node_config(parameters, self._identity.cluster)
            self._ground = Ground(self._setting, self._identity, config, parameters, self._metadata, self._children)
        elif step is Step.VOLUME:
            await self._volume().ready()
        elif step is Step.ENVIRONMENT:
            write_environment(await self._environment())
        elif missing := self._missing_packages():
            raise InvalidConfiguration(f"{', '.join(missing)} is not installed for {sys.executable}: install the wheel of dyntrain with all it needs")

    async def _serve(self, step: Step, supervisor: Supervisor, retired: asyncio.Future[str], tasks: asyncio.TaskGroup) -> None:
        """A step after those of HOST."""
        if step in (Step.PREPARE, Step.MARKER):  # the script's success and the marker belong together: a failed write counts as a failed try
            self._outcome = await self._preparation().run()
        elif step is Step.REPORT:
            outcome = self._outcome or Outcome(True, 0, Verdict.COUNTS.value)
            supervisor.report("prepared" if outcome.prepared else "prepare_failed", outcome.reason)
            log.info("prepared" if outcome.prepared else "not prepared", extra={"tries": outcome.tries, "reason": outcome.reason})
            self._reported = True
        elif step is Step.SIGNAL:
            tasks.create_task(wire(self._known(), self._variables(), supervisor, tasks).run())
            self._signalled = True
        else:  # without success nobody retires the node: it waits to be terminated
            await supervisor.retire(await retired)
            self._retired = True

    # ---- what there is

    def _known(self) -> Ground:
        if self._ground is None:
            raise RuntimeError("the configuration is read before anything that needs it")
        return self._ground

    def _variables(self) -> dict[str, str]:
        ground = self._known()
        known = variables(ground.identity, ground.config, self._setting.layout.workers, self._gpus or 0)
        return known | {"AWS_DEFAULT_REGION": ground.identity.region}

    def _volume(self) -> Volume:
        config, setting = self._known().config, self._setting
        return Volume(config.volume, config.mount, setting.layout, self._children, setting.systemctl, setting.is_mount)

    async def _volume_is_usable(self) -> bool:
        try:
            return await self._volume().usable()
        except ServiceUnavailable:  # the step says so, and waits
            return False

    async def _environment(self) -> dict[Path, str]:
        ground, layout = self._known(), self._setting.layout
        if self._gpus is None:
            self._gpus = await count_gpus(layout.gpus, self._setting.nvidia_smi, self._children, layout.logs / "nvidia-smi.log")
        return environment_files(layout, ground.identity, ground.config, self._gpus)

    def _missing_packages(self) -> list[str]:
        return [name for name in self._setting.packages if importlib.util.find_spec(name) is None]

    def _preparation(self) -> Preparation:
        ground, setting = self._known(), self._setting
        return Preparation(ground.config, ground.identity, self._attempt, setting.layout, self._children, self._variables(), setting.timing)

    async def _marker(self) -> Verdict | None:
        if self._outcome is not None:
            return Verdict.COUNTS if self._outcome.prepared else None
        try:
            return (await self._preparation().look())[1]
        except OSError:
            return None


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
