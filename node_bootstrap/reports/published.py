"""Reads the parameters that coordinator and controller publish, within the request limit of Parameter Store.

Parameter Store answers at most 40 requests per second for an AWS account. While a cluster has no coordinator, all its
nodes query Parameter Store repeatedly. To stay below the limit, each node reads all parameters in one request, and the
nodes send their requests at different times. A node of a larger cluster waits
longer between two requests (see `core.pacing`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Mapping, Sequence

from dyntrain.controller.contract.messages import CoordinatorEndpoint, Target, parameter
from dyntrain.node_bootstrap.core.pacing import Timing, request_period, seconds_until_request
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.reports.config import Access, Parameters, describe_wrong_fields
from pydantic import SecretStr, ValidationError

MAX_ANSWER_AGE_SECONDS = 2.0  # in a large cluster, an answer up to this age is used instead of another request
GOLDEN_RATIO = 0.618034


class PublishedParameters:
    """Reads a cluster's parameters `coordinator`, `token` and `target`.

    Each method that reads may raise ServiceUnavailable.
    """

    def __init__(self, parameters: Parameters, identity: Identity, timing: Timing) -> None:
        self._parameters, self._identity, self._timing = parameters, identity, timing
        self._endpoint, self._token, self._target = (
            parameter(identity.cluster, "coordinator"),
            parameter(identity.cluster, "token"),
            parameter(identity.cluster, "target"),
        )
        id_digest = hashlib.sha256(identity.instance_id.encode()).digest()
        self._turn_share = (
            int.from_bytes(id_digest[:4], "big") / 2**32
        )  # fraction of the period at which this node reads
        self._nodes_by_coordinator = self._nodes_by_target = (
            0  # number of the cluster's nodes, from its coordinator or its target
        )
        self._parameter_texts: Mapping[str, str] = {}
        self._answer_count, self._answered_at = 0, float("-inf")
        self._read_lock = asyncio.Lock()

    def set_addresses(self, addresses: Sequence[str]) -> None:
        """Set the addresses of all nodes in the coordinator's order, which gives each node its own time to read."""
        if self._identity.private_ip in addresses:
            self._nodes_by_coordinator = len(addresses)
            node_index = addresses.index(self._identity.private_ip)
            # base nodes are the first; multiples of the golden ratio lie far apart for any number of nodes
            self._turn_share = (
                node_index * GOLDEN_RATIO % 1.0 if self._identity.base else node_index / self._nodes_by_coordinator
            )

    async def access(self) -> Access | None:
        """Return the coordinator's address, certificate and token, or None while no coordinator has published them."""
        parameter_texts = await self._read_parameters()
        if self._endpoint not in parameter_texts or self._token not in parameter_texts:
            return None
        try:
            endpoint = CoordinatorEndpoint.model_validate_json(parameter_texts[self._endpoint])
        except ValidationError as error:
            raise ServiceUnavailable(
                f"invalid parameter {self._endpoint} of cluster {self._identity.cluster}: "
                f"{describe_wrong_fields(error)}; waiting for a coordinator to rewrite it"
            ) from error
        return Access(endpoint, SecretStr(parameter_texts[self._token]))

    async def target(self) -> Target | None:
        """Return the controller's target, which lists the nodes that train, or None while there is no target."""
        return self._parse_target(await self._read_parameters())

    async def is_wanted(self) -> bool:
        """Whether the controller's target lists this node.

        If the list of nodes is too long for the parameter, the result is True, and the coordinator checks whether to
        admit the node.
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
                f"invalid parameter {self._target} of cluster {self._identity.cluster}: "
                f"{describe_wrong_fields(error)}; waiting for the controller to rewrite it"
            ) from error

    async def _read_parameters(self) -> Mapping[str, str]:
        """Wait for this node's time to read, then read the cluster's parameters; the first read does not wait.

        Concurrent calls share one request.
        """
        earlier_answer_count = self._answer_count
        async with self._read_lock:
            read_period = request_period(
                max(self._nodes_by_coordinator, self._nodes_by_target),
                self._timing.nomination_check_seconds if self._identity.base else None,
            )
            answer_is_fresh = time.monotonic() - self._answered_at < min(MAX_ANSWER_AGE_SECONDS, read_period)
            if self._answer_count == earlier_answer_count and not answer_is_fresh:
                if self._answer_count:
                    await asyncio.sleep(seconds_until_request(time.time(), read_period, self._turn_share))
                parameter_names = (self._endpoint, self._token, self._target)
                self._parameter_texts = await asyncio.to_thread(self._parameters.get, *parameter_names)
                self._answer_count, self._answered_at = self._answer_count + 1, time.monotonic()
                with contextlib.suppress(ServiceUnavailable):
                    target = self._parse_target(self._parameter_texts)
                    self._nodes_by_target = target.count if target is not None else self._nodes_by_target
            return self._parameter_texts
