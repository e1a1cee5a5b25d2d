"""What the cluster's parameters say of its coordinator and its members, at a pace that the account can bear.

Parameter Store answers 40 requests a second, to the whole account. Without a coordinator every node of a cluster asks,
for as long as that lasts. So all questions of a node are one request, and the nodes take turns: however many they are,
they make a bounded number of requests a second (`core.pacing`).
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

FRESH_SECONDS = 2.0  # in a cluster of many nodes an answer as old as this is as good as another request
GOLDEN = 0.618034


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
        self._share = int.from_bytes(digest[:4], "big") / 2**32  # of the period, where its turn is
        self._told = self._counted = 0  # nodes of the cluster: by its coordinator, by its target
        self._texts: Mapping[str, str] = {}
        self._answers, self._answered_at = 0, float("-inf")
        self._turn = asyncio.Lock()

    def placed(self, addresses: Sequence[str]) -> None:
        """The cluster's nodes in their order, as the coordinator tells it: from now on no two share a turn."""
        if self._identity.private_ip in addresses:
            self._told = len(addresses)
            rank = addresses.index(self._identity.private_ip)
            # the few base nodes are the first: these multiples lie far apart, however few they are
            self._share = rank * GOLDEN % 1.0 if self._identity.base else rank / self._told

    async def access(self) -> Access | None:
        """How to reach the coordinator; None while none has published itself."""
        texts = await self._read()
        if self._endpoint not in texts or self._token not in texts:
            return None
        try:
            endpoint = CoordinatorEndpoint.model_validate_json(texts[self._endpoint])
        except ValidationError as error:
            raise ServiceUnavailable(
                f"parameter {self._endpoint} of cluster {self._identity.cluster}: {wrong_fields(error)}; "
                "waiting for a coordinator to write it anew"
            ) from error
        return Access(endpoint, SecretStr(texts[self._token]))

    async def target(self) -> Target | None:
        """None while none was published."""
        return self._parsed(await self._read())

    async def wanted(self) -> bool:
        """Whether the target lists this node.

        A list that outgrew the parameter is not read: the coordinator does that, and admits nobody who is not on it.
        """
        target = await self.target()
        return target is not None and (target.members is None or self._identity.instance_id in target.members)

    def _parsed(self, texts: Mapping[str, str]) -> Target | None:
        if self._target not in texts:
            return None
        try:
            return Target.model_validate_json(texts[self._target])
        except ValidationError as error:
            raise ServiceUnavailable(
                f"parameter {self._target} of cluster {self._identity.cluster}: {wrong_fields(error)}; "
                "waiting for the controller to write it anew"
            ) from error

    async def _read(self) -> Mapping[str, str]:
        """In this node's turn, but for its first request; who asks meanwhile gets the same answer."""
        answers = self._answers
        async with self._turn:
            between = period(max(self._told, self._counted), self._timing.succession if self._identity.base else None)
            fresh = time.monotonic() - self._answered_at < min(FRESH_SECONDS, between)
            if self._answers == answers and not fresh:
                if self._answers:
                    await asyncio.sleep(until_turn(time.time(), between, self._share))
                names = (self._endpoint, self._token, self._target)
                self._texts = await asyncio.to_thread(self._parameters.get, *names)
                self._answers, self._answered_at = self._answers + 1, time.monotonic()
                with contextlib.suppress(ServiceUnavailable):
                    target = self._parsed(self._texts)
                    self._counted = target.count if target is not None else self._counted
            return self._texts
