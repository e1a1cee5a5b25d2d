"""Reads the parameters that coordinator and controller publish, within the account's request limit.

Parameter Store answers 40 requests per second and account. While a cluster has no
coordinator, all its nodes query Parameter Store. So each node reads all parameters in one request, and the nodes take
turns. These turns bound the request rate for any number of nodes (`core.pacing`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Mapping, Sequence

from dyntrain.controller.contract.messages import CoordinatorEndpoint, Target, parameter
from dyntrain.node_bootstrap.core.pacing import Timing, period, until_turn
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.reports.config import Access, Parameters, wrong_fields
from pydantic import SecretStr, ValidationError

FRESH_SECONDS = 2.0  # in a large cluster an answer of this age is used instead of another request
GOLDEN_RATIO = 0.618034


class Published:
    """One node's view of the parameters `coordinator`, `token` and `target`. All methods raise ServiceUnavailable."""

    def __init__(self, parameters: Parameters, identity: Identity, timing: Timing) -> None:
        self._parameters, self._identity, self._timing = parameters, identity, timing
        self._endpoint, self._token, self._target = (
            parameter(identity.cluster, "coordinator"),
            parameter(identity.cluster, "token"),
            parameter(identity.cluster, "target"),
        )
        digest = hashlib.sha256(identity.instance_id.encode()).digest()
        self._share = (
            int.from_bytes(digest[:4], "big") / 2**32
        )  # fraction of the period at which this node's turn comes
        self._nodes_by_coordinator = self._nodes_by_target = (
            0  # number of the cluster's nodes, from its coordinator or its target
        )
        self._texts: Mapping[str, str] = {}
        self._answers, self._answered_at = 0, float("-inf")
        self._turn = asyncio.Lock()

    def set_addresses(self, addresses: Sequence[str]) -> None:
        """Set the addresses of the cluster's nodes, in the coordinator's order. Then no two nodes share a turn."""
        if self._identity.private_ip in addresses:
            self._nodes_by_coordinator = len(addresses)
            rank = addresses.index(self._identity.private_ip)
            # base nodes are the first; multiples of the golden ratio lie far apart for any number of nodes
            self._share = rank * GOLDEN_RATIO % 1.0 if self._identity.base else rank / self._nodes_by_coordinator

    async def access(self) -> Access | None:
        """Address, certificate and token of the coordinator; None while no coordinator has published them."""
        texts = await self._read()
        if self._endpoint not in texts or self._token not in texts:
            return None
        try:
            endpoint = CoordinatorEndpoint.model_validate_json(texts[self._endpoint])
        except ValidationError as error:
            raise ServiceUnavailable(
                f"parameter {self._endpoint} of cluster {self._identity.cluster}: {wrong_fields(error)}; "
                "waiting for a coordinator to rewrite it"
            ) from error
        return Access(endpoint, SecretStr(texts[self._token]))

    async def target(self) -> Target | None:
        """Return the controller's target (which nodes train); None while no target is published."""
        return self._parse_target(await self._read())

    async def is_wanted(self) -> bool:
        """Whether the target lists this node.

        Also True if the list is too long for the parameter: the coordinator then checks the node on admission.
        """
        target = await self.target()
        return target is not None and (target.members is None or self._identity.instance_id in target.members)

    def _parse_target(self, texts: Mapping[str, str]) -> Target | None:
        if self._target not in texts:
            return None
        try:
            return Target.model_validate_json(texts[self._target])
        except ValidationError as error:
            raise ServiceUnavailable(
                f"parameter {self._target} of cluster {self._identity.cluster}: {wrong_fields(error)}; "
                "waiting for the controller to rewrite it"
            ) from error

    async def _read(self) -> Mapping[str, str]:
        """Read the parameters at this node's turn, the first time at once. Concurrent callers share one answer."""
        known_answers = self._answers
        async with self._turn:
            turn_period = period(
                max(self._nodes_by_coordinator, self._nodes_by_target),
                self._timing.succession if self._identity.base else None,
            )
            fresh = time.monotonic() - self._answered_at < min(FRESH_SECONDS, turn_period)
            if self._answers == known_answers and not fresh:
                if self._answers:
                    await asyncio.sleep(until_turn(time.time(), turn_period, self._share))
                names = (self._endpoint, self._token, self._target)
                self._texts = await asyncio.to_thread(self._parameters.get, *names)
                self._answers, self._answered_at = self._answers + 1, time.monotonic()
                with contextlib.suppress(ServiceUnavailable):
                    target = self._parse_target(self._texts)
                    self._nodes_by_target = target.count if target is not None else self._nodes_by_target
            return self._texts
