"""Read the inputs for decisions on pools of reserved instances. The inputs are reservations, all instances of the
account, and each pool's Auto Scaling group or listed instances.

If a read fails or contradicts another read, `PoolReading.problem` gives the reason. If a reading has a problem, no pool
is changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import ControllerError
from dyntrain.controller.contract.messages import OWNER_TAG, ClusterPolicy
from dyntrain.controller.contract.pool_policy import POOL_TAG, PoolPolicy
from dyntrain.controller.core.decisions.windows import next_opening
from dyntrain.controller.core.planning import Decision, decide
from dyntrain.controller.core.pool.inputs import Capacity, Claim, Inputs, Pool, Reserved, Usage, platform_of
from dyntrain.controller.core.pool.instances import ListedInstance, kept_count, largest_size
from dyntrain.controller.core.records.groups import GroupSize
from dyntrain.controller.core.views.reasons import Reason
from dyntrain.controller.core.views.view import MAX_UNSEEN_CALLS, Rules, missed_read_count
from dyntrain.controller.loops.ports import Ports
from dyntrain.controller.loops.registry import Registry
from dyntrain.controller.pool.ports import PoolPorts, SeenMachine, StoredLedger

POLICY_FIELDS = (
    "instance_type",
    "zone",
    "platform",
    "tenancy",
    "capacity_reservations",
    "min",
    "max",
    "base",
    "headroom",
    "readings",
)
POLICY_TIMING_FIELDS = ("reading_seconds", "lease_seconds", "priority", "dry_run")


@dataclass(frozen=True)
class PoolReading:
    """The data about reservations, instances and pools that one run of the pool's loop has read."""

    at: float  # the time before the first read
    reserved: Sequence[Reserved] = ()  # Reserved Instances
    capacity: Sequence[Capacity] = ()  # capacity reservations
    machines: Sequence[SeenMachine] = ()  # all instances of the account
    holders: Mapping[str, str] = field(default_factory=dict)  # by instance: the cluster whose pool holds it
    sizes: Mapping[str, GroupSize] = field(default_factory=dict)  # of the pool's group, by cluster
    listed: Mapping[str, Sequence[ListedInstance]] = field(default_factory=dict)  # by cluster: instances of its pool
    retrying: frozenset[str] = frozenset()  # clusters whose group is recovering from failed launches
    lost_instances: Mapping[str, str] = field(default_factory=dict)  # by cluster: a held instance not shown by EC2
    closed_reasons: Mapping[str, str] = field(default_factory=dict)  # by cluster: why it cannot use any instance
    problem: str = ""  # the reason why nothing may be decided on this reading


def group_of(policy: ClusterPolicy) -> str | None:
    """The Auto Scaling group whose desired capacity the pool sets, or None. The result is None for a pool of listed
    instances, and for a policy that neither names the pool's group nor has exactly one group.
    """
    assert policy.pool is not None
    if policy.pool.instances:
        return None
    return policy.pool.group or (policy.groups[0] if len(policy.groups) == 1 else None)


def read_pools(
    pool_ports: PoolPorts,
    registry: Registry,
    policies: Mapping[str, ClusterPolicy],
    stored: StoredLedger,
    elastic: ElasticTag,
) -> PoolReading:
    """Read all inputs for the decisions on the pools. A failed read raises no error: the result's `problem` gives the
    reason.
    """
    start_time = pool_ports.ports.clock()
    cluster_by_group = {
        group: cluster
        for cluster, policy in sorted(policies.items(), reverse=True)
        if (group := group_of(policy)) is not None
    }
    try:
        reserved_instances, reservations, machines = (
            pool_ports.reservations.reserved_instances(),
            pool_ports.reservations.capacity_reservations(),
            pool_ports.reservations.machines(),
        )
        members = pool_ports.ports.groups.members(sorted(cluster_by_group)) if cluster_by_group else ()
        sizes = pool_ports.ports.groups.sizes(sorted(cluster_by_group)) if cluster_by_group else {}
        retrying_clusters = frozenset(
            cluster for group, cluster in cluster_by_group.items() if _handles_failed_launches(pool_ports.ports, group)
        )
        machines_by_id = {machine.instance: machine for machine in machines}
        decisions = {
            cluster: _cluster_decision(pool_ports.ports, policy, elastic) for cluster, policy in policies.items()
        }
        instances_by_cluster = {
            cluster: _listed_instances(policy, machines_by_id, stored.claims.get(cluster), elastic, decisions[cluster])
            for cluster, policy in policies.items()
            if policy.pool is not None
            and (policy.pool.instances or (cluster in stored.claims and stored.claims[cluster].held))
        }
        lost_instances = {
            cluster: lost_instance
            for cluster in instances_by_cluster
            if (lost_instance := _lost_instance(pool_ports.ports, stored.claims.get(cluster), machines_by_id))
            is not None
        }
    except ControllerError as error:
        return PoolReading(start_time, problem=" ".join(str(error).split()))
    missing_ids = [
        member.instance for member in members if member.phase == "in_service" and member.instance not in machines_by_id
    ]
    if missing_ids:
        return PoolReading(start_time, problem=f"EC2 does not show {missing_ids[0]}, which is in service in its group")
    holders = {member.instance: cluster_by_group[member.group] for member in members}
    holders.update({instance: cluster for cluster, claim in stored.claims.items() for instance in claim.held})
    size_by_cluster = {cluster_by_group[group]: size for group, size in sizes.items()}
    closed_reasons = {
        cluster: closed_reason for cluster, decision in decisions.items() if (closed_reason := _closed_reason(decision))
    }
    return PoolReading(
        start_time,
        reserved_instances,
        reservations,
        machines,
        holders,
        size_by_cluster,
        instances_by_cluster,
        retrying_clusters,
        lost_instances,
        closed_reasons,
    )


def inputs_of(reading: PoolReading, policies: Mapping[str, ClusterPolicy], stored: StoredLedger) -> Inputs:
    """Convert a reading to the inputs of the function `plan_pools`. Instances with equal properties become one entry
    with a count. Pure.
    """
    usage_counts = Counter(
        Usage(
            instance_type=machine.instance_type,
            zone=machine.zone,
            platform=platform_of(machine.platform),
            tenancy=machine.tenancy,
            state=machine.state,
            lifecycle=machine.lifecycle,
            capacity_reservation=machine.capacity_reservation,
            pool=reading.holders.get(machine.instance),
        )
        for machine in reading.machines
        if machine.state != "terminated"
    )
    usage_lines = [usage_line.model_copy(update={"count": count}) for usage_line, count in usage_counts.items()]
    return Inputs(
        at=reading.at,
        end_margin_seconds=max(
            (policy.pool.end_margin_seconds for policy in policies.values() if policy.pool is not None), default=0.0
        ),
        reserved=tuple(reading.reserved),
        capacity=tuple(reading.capacity),
        usage=tuple(sorted(usage_lines, key=lambda usage_line: usage_line.model_dump_json())),
        pools=tuple(
            _pool_inputs(cluster, policy, reading, stored.claims.get(cluster))
            for cluster, policy in sorted(policies.items())
        ),
        claims=dict(stored.claims),
        problem=reading.problem,
    )


def _pool_inputs(cluster: str, policy: ClusterPolicy, reading: PoolReading, claim: Claim | None) -> Pool:
    assert policy.pool is not None
    pool_fields = {
        field_name: getattr(policy.pool, field_name) for field_name in (*POLICY_FIELDS, *POLICY_TIMING_FIELDS)
    } | {
        "platform": platform_of(policy.pool.platform),
        "opens": opening.text if (opening := next_opening(policy.leave_windows, reading.at)) is not None else "",
        "closed": (closed_reason := reading.closed_reasons.get(cluster, "")),
    }
    if cluster in reading.lost_instances:
        return Pool(
            cluster=cluster,
            current=kept_count(claim),
            frozen=f"EC2 does not show {reading.lost_instances[cluster]}, which the pool holds",
            **pool_fields,
        )
    if policy.pool.instances:
        largest_count = largest_size(reading.listed.get(cluster, ()), claim)
        return Pool(
            cluster=cluster, current=kept_count(claim), most=max(largest_count, kept_count(claim)), **pool_fields
        )
    group = group_of(policy)
    group_size = reading.sizes.get(cluster)
    if group is None:
        return Pool(
            cluster=cluster, frozen="pool.group: name one of the cluster's groups, or list instances", **pool_fields
        )
    if group_size is None:
        return Pool(
            cluster=cluster, frozen=f"the group {group} does not exist, or another cluster's pool has it", **pool_fields
        )
    may_grow = cluster not in reading.retrying
    # In a closed cluster, terminating a member also lowers the group's size. So the pool must not change the size.
    smallest_size = group_size.desired if closed_reason else group_size.minimum
    return Pool(
        cluster=cluster,
        current=group_size.desired,
        least=smallest_size,
        most=group_size.maximum,
        growable=may_grow,
        **pool_fields,
    )


def _handles_failed_launches(ports: Ports, group: str) -> bool:
    """Whether the controller is still responding to failed launches in the Auto Scaling group. While the controller
    responds to failed launches, a higher desired capacity set by the pool would undo the response.
    """
    stored_group = ports.group_records.get(group)
    capacity_response = stored_group.facts.capacity if stored_group is not None else None
    return capacity_response is not None and (
        not capacity_response.done or capacity_response.wanted > capacity_response.desired
    )


def _closed_reason(decision: Decision) -> str:
    """The reason why the cluster cannot use any instance, or "" if the cluster can use instances."""
    if decision.ending is not None:
        return decision.ending.reason.sentence
    return Reason.JOB_OVER.sentence if decision.job.over else ""


def _listed_instances(
    policy: ClusterPolicy,
    machines_by_id: Mapping[str, SeenMachine],
    claim: Claim | None,
    elastic: ElasticTag,
    decision: Decision,
) -> tuple[ListedInstance, ...]:
    """The existing instances that the policy lists or the pool still holds. Held instances that the policy no longer
    lists will be released.
    """
    assert policy.pool is not None
    elastic_tag_key = elastic.of(policy.cluster)
    held_ids = claim.held if claim is not None else ()
    releasing_ids = claim.releasing if claim is not None else ()
    instance_ids = dict.fromkeys((*policy.pool.instances, *held_ids))
    released_ids = [instance for instance in instance_ids if instance in releasing_ids]
    ids_outside_job = _instances_outside_job(released_ids, decision)
    listed_instances = []
    for instance in instance_ids:
        machine = machines_by_id.get(instance)
        if machine is not None:
            is_allowed = instance in policy.pool.instances and _fits_pool(machine, policy.cluster, policy.pool)
            listed_instances.append(
                ListedInstance(
                    instance, machine.state, elastic_tag_key in machine.tags, is_allowed, instance in ids_outside_job
                )
            )
    return tuple(listed_instances)


def _lost_instance(ports: Ports, claim: Claim | None, machines_by_id: Mapping[str, SeenMachine]) -> str | None:
    """An instance that the pool holds but EC2 unexpectedly does not show, or None. An instance that is terminated, or
    that EC2 has not shown in MAX_UNSEEN_CALLS calls, is not regarded as lost.
    """
    for instance in claim.held if claim is not None else ():
        if instance not in machines_by_id:
            stored_node = ports.nodes.get(instance)
            if stored_node is None or not (
                stored_node.facts.terminated or missed_read_count(stored_node.facts) >= MAX_UNSEEN_CALLS
            ):
                return instance
    return None


def _fits_pool(machine: SeenMachine, cluster: str, pool: PoolPolicy) -> bool:
    actual_properties = (machine.instance_type, platform_of(machine.platform), machine.tenancy, machine.lifecycle)
    expected_properties = (pool.instance_type, platform_of(pool.platform), pool.tenancy, "on-demand")
    # an instance with the ownership tag would be terminated when it leaves
    is_tagged_for_cluster = machine.tags.get(POOL_TAG) == cluster and OWNER_TAG not in machine.tags
    return is_tagged_for_cluster and actual_properties == expected_properties and pool.zone in (None, machine.zone)


def _cluster_decision(ports: Ports, policy: ClusterPolicy, elastic: ElasticTag) -> Decision:
    """The controller's decision on the cluster's nodes and target membership. The decision is derived from the stored
    facts in the same way as in the controller's main loop.
    """
    cluster = policy.cluster
    stored_membership = ports.clusters.get(cluster)
    node_facts = [node.facts for node in ports.nodes.of_cluster(cluster).values()]
    return decide(
        node_facts,
        stored_membership.membership,
        ports.jobs.get(cluster)[0],
        Rules(policy, elastic),
        ports.clock(),
        stored_membership.published,
    )


def _instances_outside_job(released_ids: Sequence[str], decision: Decision) -> frozenset[str]:
    """The instances among `released_ids` that are neither in the job nor in the target membership. Instances whose
    elastic tag the controller still sees are left out of the result.
    """
    nodes_by_id = {node.view.instance: node for node in decision.nodes}
    unknown_ids = {instance for instance in released_ids if instance not in nodes_by_id}
    removed_ids = {
        instance
        for instance in released_ids
        if instance in nodes_by_id
        and not nodes_by_id[instance].view.elastic
        and nodes_by_id[instance].standing.status in ("REMOVED", "GONE")
    }
    return frozenset(unknown_ids | removed_ids) - set(decision.membership.members)
