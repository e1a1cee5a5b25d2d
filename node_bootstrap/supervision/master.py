"""Keeps the coordinator running on the one base node that the target names, until it says that the job is over.

Every base node stands by. One that has no coordinator looks whether it is nominated; while one answers, nobody looks.
The nomination alone moves nothing: the coordinator claims the job on the shared volume, and the one that is overtaken
ends by itself (`dyntrain.training.coordinator.terms`).
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
from dyntrain.controller.contract.region_keys import REGION, UNVERIFIED, keys_text, kind_of, trusted
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.node_bootstrap.host.processes import Child, Children, Program, explain
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.training.protocol.clocks import spread

log = logging.getLogger(__name__)


def coordinator_arguments(identity: Identity, config: NodeConfig) -> list[str]:
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
    # one word: a PEM begins with dashes
    arguments += [f"--identity-keys={keys}"] if (keys := identity_keys(identity, config)) else []
    arguments += [
        "--liveness-seconds",
        str(config.liveness_seconds),
        "--progress-seconds",
        str(config.progress_seconds),
    ]
    return [*arguments, "--pause-seconds", str(config.pause_seconds), "--boundary", config.boundary]


def identity_keys(identity: Identity, config: NodeConfig) -> str:
    """By whose signature the coordinator knows a node; "": by none. AWS's key of the region counts if it signed this
    node's own document: were it another one by now, nobody could join any more.
    """
    kind = kind_of(config.identity_keys)
    if kind != REGION:
        return "" if kind == UNVERIFIED else config.identity_keys
    keys = trusted(REGION, identity.region)
    said = judge(identity.signed, identity.instance_id, identity.private_ip, keys)
    if said is Verification.GENUINE:
        return keys_text(identity.region)
    log.warning("nodes are taken at their word", extra={"region": identity.region, "reason": said.value})
    return ""


def nominated_term(target: Target | None, identity: Identity) -> int | None:
    """The term in which this node is to run the coordinator; None: another node is, or nobody. Before any nomination it
    is the tagged master.
    """
    if target is None or target.term == 0:
        return 0 if identity.master else None
    return target.term if target.coordinator == identity.instance_id else None


class CoordinatorKeeper:
    """`term` asks whether the node is nominated (it raises ServiceUnavailable), `connected` says whether a coordinator
    answers it. `again`: the end of a job is not the end of the cluster, another one may be launched.
    """

    def __init__(
        self,
        program: Program,
        children: Children,
        term: Callable[[], Awaitable[int | None]],
        connected: Callable[[], bool],
        timing: Timing,
        again: bool = False,
    ) -> None:
        self._again = again
        self._program, self._children, self._timing = program, children, timing
        self._term, self._connected = term, connected
        self._leads = self._retired = False
        self._held: int | None = None
        self.finished = asyncio.Event()

    def retire(self) -> bool:
        """The job is over: this node takes it over from nobody any more. True where the coordinator runs, which still
        has to end by itself.
        """
        self._retired = True
        return self._leads

    async def run(self) -> None:
        """Starts it again with growing pauses whenever it dies; returns once it exited with 0, which sets
        `finished`.
        """
        deaths = 0
        while self._leads or not self._retired:
            term = await self._nomination()
            self._leads, self._held = term is not None, term
            if term is None:
                await asyncio.sleep(spread(self._timing.succession, random.random()))
                continue
            log.info("this node runs the coordinator", extra={"term": term})
            began = time.monotonic()
            try:
                child = await self._start(term)
                reason = explain(await child.wait(), 0.0)
                await child.stop()
            except OSError as error:
                reason = str(error)
            if not reason and self._again:
                log.info("the coordinator has ended a launch, and waits for the next one")
                deaths = 0
                continue
            if not reason:
                log.info("the coordinator finished")
                self.finished.set()
                return
            deaths = 0 if time.monotonic() - began > self._timing.coordinator_steady else deaths
            pause = self._timing.coordinator.delay(deaths)
            deaths += 1
            log.error("the coordinator died, it is started again", extra={"reason": reason, "pause": pause})
            await asyncio.sleep(pause)

    async def _nomination(self) -> int | None:
        """Where the target cannot be read, the node goes on as it was: whether it still holds the job, the claim on the
        volume says.
        """
        if self._connected():
            return None
        try:
            return await self._term()
        except ServiceUnavailable as error:
            log.warning(str(error))
            return self._held

    async def _start(self, term: int) -> Child:
        command = [*self._program.command, "--term", str(term)]
        return await self._children.start("coordinator", replace(self._program, command=command))
