"""The existing clusters: their policies from the parameter store, cached for a short time."""

from __future__ import annotations

import json
import logging
from contextlib import suppress

from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.contract.stage import stage_names, unclear_owner
from dyntrain.controller.contract.wrong_fields import wrong_fields
from dyntrain.controller.loops.ports import Clock, Parameters
from pydantic import ValidationError

log = logging.getLogger("dyntrain.registry")

KEEP_SECONDS = 30.0
MISS_SECONDS = 2.0  # an unknown cluster may have been created just now


class Registry:
    """Policies by cluster. An invalid policy is reported and skipped, and does not stop other clusters. Only clusters
    of `stage` are served; None: clusters of all stages.
    """

    def __init__(self, parameters: Parameters, clock: Clock, stage: str | None = None) -> None:
        self._parameters, self._stage = parameters, stage
        self._clock = clock
        self._policies: dict[str, ClusterPolicy] = {}
        self._problems: dict[str, str] = {}
        self._read_at = float("-inf")

    def all(self) -> dict[str, ClusterPolicy]:
        self._read(KEEP_SECONDS)
        return self._policies

    def problems(self) -> dict[str, str]:
        """Errors of the policies that were skipped, by cluster."""
        self._read(KEEP_SECONDS)
        return self._problems

    def policy(self, cluster: str) -> ClusterPolicy | None:
        if cluster not in self.all():
            self._read(MISS_SECONDS)
        return self._policies.get(cluster)

    def of_group(self, group: str) -> str | None:
        """The cluster that registered the Auto Scaling group; the first by name if several claim it."""
        for keep_seconds in (KEEP_SECONDS, MISS_SECONDS):
            self._read(keep_seconds)
            claims = sorted(cluster for cluster, policy in self._policies.items() if group in policy.groups)
            if claims:
                return claims[0]
        return None

    def _read(self, keep_seconds: float) -> None:
        now = self._clock()
        if now - self._read_at < keep_seconds:
            return
        policies, problems = {}, {}
        for cluster, text in self._parameters.policies().items():
            try:
                policy = ClusterPolicy.model_validate_json(text)
            except ValidationError as error:
                if self._stage is not None and _stage_in(text) not in (None, self._stage):
                    continue
                problems[cluster] = wrong_fields(error, "policy")
                continue
            if policy.cluster != cluster:
                problems[cluster] = f"cluster: the policy of {cluster!r} names the cluster {policy.cluster!r}"
                continue
            if self._stage is not None and policy.stage not in (None, self._stage):
                continue
            policies[cluster] = policy
        for cluster in [name for name, policy in policies.items() if policy.stage is None and self._stage is not None]:
            if unclear := unclear_owner(None, stage_names(self._parameters.stages())):
                problems[cluster] = unclear
                del policies[cluster]
        for cluster, problem in problems.items():
            if self._problems.get(cluster) != problem:
                log.error("policy skipped", extra={"cluster": cluster, "problem": problem})
        self._policies, self._problems, self._read_at = policies, problems, now


def _stage_in(text: str) -> str | None:
    """The stage that an invalid policy names, whose controller reports the policy; None without a stage."""
    with suppress(ValueError):
        policy = json.loads(text)
        stage = policy.get("stage") if isinstance(policy, dict) else None
        return stage if isinstance(stage, str) else None
    return None
