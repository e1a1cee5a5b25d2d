"""Keeps the coordinator running on the base node that the controller's target nominates, until the job is over.

A base node that is connected to a coordinator does not check whether it is nominated. A nomination does not stop an
earlier coordinator on another node. The new coordinator claims the job on the shared volume. A coordinator ends itself
when another coordinator has claimed the job later (`dyntrain.training.coordinator.terms`).
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from dyntrain.controller.contract.instance_identity import Verification, judge
from dyntrain.controller.contract.messages import NodeConfig, Target
from dyntrain.controller.contract.region_keys import REGION, UNVERIFIED, identity_setting_kind, keys_text, trusted_keys
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.node_bootstrap.host.processes import Child, Children, Program, explain_exit
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.training.protocol.clocks import spread

log = logging.getLogger(__name__)


def coordinator_arguments(identity: Identity, config: NodeConfig) -> list[str]:
    """Return the command line arguments of the coordinator."""
    arguments = [
        "--cluster",
        identity.cluster,
        "--instance-id",
        identity.instance_id,
        "--host",
        identity.private_ip,
        "--mount",
        config.mount,
    ]
    arguments += [
        "--num-workers",
        str(config.workers),
        "--min-workers",
        str(config.min_workers),
        "--max-workers",
        str(config.max_workers),
    ]
    arguments += ["--stage", config.stage] if config.stage is not None else []
    arguments += [] if config.training_cmd else ["--waits-for-launch"]
    arguments += ["--segment-steps", str(config.segment_steps)] if config.segment_steps is not None else []
    arguments += ["--state-transfer", config.state_transfer, "--servers", config.servers]
    arguments += ["--checkpoint-dir", config.checkpoint_dir] if config.checkpoint_dir is not None else []
    arguments += ["--output-location", config.output_location] if config.output_location is not None else []
    # one argument, since a PEM begins with dashes
    arguments += [f"--identity-keys={keys_argument}"] if (keys_argument := identity_keys(identity, config)) else []
    arguments += [
        "--liveness-seconds",
        str(config.liveness_seconds),
        "--progress-seconds",
        str(config.progress_seconds),
    ]
    return [*arguments, "--pause-seconds", str(config.pause_seconds), "--boundary", config.boundary]


def identity_keys(identity: Identity, config: NodeConfig) -> str:
    """Return the keys with which the coordinator verifies the identity of nodes; "" for no verification.

    AWS's key for the region is used only if it verifies this node's own document, since a wrong key would exclude all
    nodes.
    """
    keys_setting = identity_setting_kind(config.identity_keys)
    if keys_setting != REGION:
        return "" if keys_setting == UNVERIFIED else config.identity_keys
    region_keys = trusted_keys(REGION, identity.region)
    verification = judge(identity.signed, identity.instance_id, identity.private_ip, region_keys)
    if verification is Verification.GENUINE:
        return keys_text(identity.region)
    log.warning(
        "the identity of nodes is not verified", extra={"region": identity.region, "reason": verification.value}
    )
    return ""


def nominated_term(target: Target | None, identity: Identity) -> int | None:
    """Return the number of the term for which `target` nominates this node, else None.

    In term 0, the coordinator runs on the master.
    """
    if target is None or target.term == 0:
        return 0 if identity.master else None
    return target.term if target.coordinator == identity.instance_id else None


class CoordinatorKeeper:
    """Runs the coordinator while this node is nominated.

    `term` returns the number of the term for which the node is nominated, or None; raises ServiceUnavailable.
    `connected` returns whether this node is connected to a coordinator. With `restart_after_job`, a new coordinator is
    started after a job's end, and waits for the next launch.
    """

    def __init__(
        self,
        program: Program,
        children: Children,
        term: Callable[[], Awaitable[int | None]],
        connected: Callable[[], bool],
        timing: Timing,
        restart_after_job: bool = False,
    ) -> None:
        self._restart_after_job = restart_after_job
        self._program, self._children, self._timing = program, children, timing
        self._term, self._connected = term, connected
        self._leads = self._retired = False
        self._last_term: int | None = None
        self.finished = asyncio.Event()

    def retire(self) -> bool:
        """Start no coordinator from now on.

        Returns whether a coordinator still runs on this node, and will end by itself.
        """
        self._retired = True
        return self._leads

    async def run(self) -> None:
        """Run the coordinator, with growing pauses after crashes.

        When the coordinator has ended with exit code 0, set `finished` and return, unless `restart_after_job` is True.
        """
        crash_count = 0
        while self._leads or not self._retired:
            term = await self._nominated_term()
            self._leads, self._last_term = term is not None, term
            if term is None:
                await asyncio.sleep(spread(self._timing.nomination_check_seconds, random.random()))
                continue
            log.info("this node runs the coordinator", extra={"term": term})
            started_at = time.monotonic()
            try:
                coordinator_process = await self._start_coordinator(term)
                exit_error = explain_exit(await coordinator_process.wait(), 0.0)
                await coordinator_process.stop()
            except OSError as error:
                exit_error = str(error)
            if not exit_error and self._restart_after_job:
                log.info("the coordinator has ended a launch; a new one waits for the next launch")
                crash_count = 0
                continue
            if not exit_error:
                log.info("the coordinator finished")
                self.finished.set()
                return
            crash_count = 0 if time.monotonic() - started_at > self._timing.coordinator_steady_seconds else crash_count
            pause_seconds = self._timing.coordinator_backoff.delay(crash_count)
            crash_count += 1
            log.error("the coordinator died, it is started again", extra={"reason": exit_error, "pause": pause_seconds})
            await asyncio.sleep(pause_seconds)

    async def _nominated_term(self) -> int | None:
        """Return the number of the term for which this node is nominated, or None.

        While a coordinator is connected, always None is returned. If the controller's target cannot be read, the last
        known term is returned. Returning the last known term is safe, since claims on the shared volume prevent two
        coordinators from running the same job.
        """
        if self._connected():
            return None
        try:
            return await self._term()
        except ServiceUnavailable as error:
            log.warning(str(error))
            return self._last_term

    async def _start_coordinator(self, term: int) -> Child:
        coordinator_command = [*self._program.command, "--term", str(term)]
        return await self._children.start("coordinator", replace(self._program, command=coordinator_command))
