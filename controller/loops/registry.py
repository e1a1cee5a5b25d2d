"""The registry of existing clusters, whose policies are read from AWS's Parameter Store and cached for a short time."""

from __future__ import annotations

import json
import logging
from contextlib import suppress

from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.contract.stage import stage_names, unclear_owner_problem
from dyntrain.controller.contract.wrong_fields import wrong_fields
from dyntrain.controller.loops.ports import Clock, Parameters
from pydantic import ValidationError

log = logging.getLogger("dyntrain.registry")

CACHE_SECONDS = 30.0  # how long read policies are used
UNKNOWN_CLUSTER_CACHE_SECONDS = 2.0  # short, since an unknown cluster may have been created just now


class Registry:
    """The policy of each cluster. An invalid policy is reported and skipped, and does not affect clusters with valid
    policies. Only clusters of the deployment stage `stage` are served. If `stage` is None, clusters of all stages are
    served.
    """

    def __init__(self, parameters: Parameters, clock: Clock, stage: str | None = None) -> None:
        self._parameters, self._stage = parameters, stage
        self._clock = clock
        self._policies: dict[str, ClusterPolicy] = {}
        self._problems: dict[str, str] = {}
        self._read_at = float("-inf")

    def all(self) -> dict[str, ClusterPolicy]:
        self._read_policies(CACHE_SECONDS)
        return self._policies

    def problems(self) -> dict[str, str]:
        """The error text for each invalid policy that was skipped, by cluster name."""
        self._read_policies(CACHE_SECONDS)
        return self._problems

    def policy(self, cluster: str) -> ClusterPolicy | None:
        if cluster not in self.all():
            self._read_policies(UNKNOWN_CLUSTER_CACHE_SECONDS)
        return self._policies.get(cluster)

    def of_group(self, group: str) -> str | None:
        """The cluster whose policy lists the Auto Scaling group, or None. If several clusters list the group, returns
        the first cluster by name.
        """
        for max_cache_seconds in (CACHE_SECONDS, UNKNOWN_CLUSTER_CACHE_SECONDS):
            self._read_policies(max_cache_seconds)
            claiming_clusters = sorted(cluster for cluster, policy in self._policies.items() if group in policy.groups)
            if claiming_clusters:
                return claiming_clusters[0]
        return None

    def _read_policies(self, max_cache_seconds: float) -> None:
        now = self._clock()
        if now - self._read_at < max_cache_seconds:
            return
        policies, policy_problems = {}, {}
        for cluster, policy_json in self._parameters.policies().items():
            try:
                policy = ClusterPolicy.model_validate_json(policy_json)
            except ValidationError as error:
                if self._stage is not None and _stage_of_policy(policy_json) not in (None, self._stage):
                    continue
                policy_problems[cluster] = wrong_fields(error, "policy")
                continue
            if policy.cluster != cluster:
                policy_problems[cluster] = f"cluster: the policy of {cluster!r} names the cluster {policy.cluster!r}"
                continue
            if self._stage is not None and policy.stage not in (None, self._stage):
                continue
            policies[cluster] = policy
        for cluster in [name for name, policy in policies.items() if policy.stage is None and self._stage is not None]:
            if stage_problem := unclear_owner_problem(None, stage_names(self._parameters.stages())):
                policy_problems[cluster] = stage_problem
                del policies[cluster]
        for cluster, policy_problem in policy_problems.items():
            if self._problems.get(cluster) != policy_problem:
                log.error("policy skipped", extra={"cluster": cluster, "problem": policy_problem})
        self._policies, self._problems, self._read_at = policies, policy_problems, now


def _stage_of_policy(text: str) -> str | None:
    """The deployment stage that an invalid policy names. The controller of the named stage reports the invalid policy
    as an error. Returns None if the policy names no stage.
    """
    with suppress(ValueError):
        policy = json.loads(text)
        stage = policy.get("stage") if isinstance(policy, dict) else None
        return stage if isinstance(stage, str) else None
    return None
