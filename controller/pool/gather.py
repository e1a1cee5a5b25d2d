"""Read the inputs of the reserved pool's decision: reservations, all instances of the account, and the groups and
listed instances of every pool.

If a read fails or contradicts another read, the reading contains a problem. Nothing is decided on such a reading.
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
from dyntrain.controller.core.views.view import MAX_UNSEEN_CALLS, Rules, unseen_times
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
    """The data that one run read. `holders` maps an instance to the cluster whose pool holds it. `sizes` is by cluster.

    `retrying` are clusters whose group is recovering from failed launches. `lost_instances` maps a cluster to an
    instance that its pool holds and EC2 does not show. `closed_reasons` says why a cluster cannot use any instance.
    """

    at: float
    reserved: Sequence[Reserved] = ()
    capacity: Sequence[Capacity] = ()
    machines: Sequence[SeenMachine] = ()
    holders: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, GroupSize] = field(default_factory=dict)
    listed: Mapping[str, Sequence[ListedInstance]] = field(default_factory=dict)
    retrying: frozenset[str] = frozenset()
    lost_instances: Mapping[str, str] = field(default_factory=dict)
    closed_reasons: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


def group_of(policy: ClusterPolicy) -> str | None:
    """The group whose capacity the pool sets; None when the cluster has none or several groups."""
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
    """Read all inputs. Never raises for a failed read; the reading then contains the problem."""
    at = pool_ports.ports.clock()
    groups = {
        group: cluster
        for cluster, policy in sorted(policies.items(), reverse=True)
        if (group := group_of(policy)) is not None
    }
    try:
        reserved, capacity, machines = (
            pool_ports.reservations.reserved(),
            pool_ports.reservations.capacity(),
            pool_ports.reservations.machines(),
        )
        members = pool_ports.ports.groups.members(sorted(groups)) if groups else ()
        sizes = pool_ports.ports.groups.sizes(sorted(groups)) if groups else {}
        retrying = frozenset(
            cluster for group, cluster in groups.items() if _handles_failed_launches(pool_ports.ports, group)
        )
        by_id = {machine.instance: machine for machine in machines}
        decisions = {name: _cluster_decision(pool_ports.ports, policy, elastic) for name, policy in policies.items()}
        listed = {
            name: _listed_instances(policy, by_id, stored.claims.get(name), elastic, decisions[name])
            for name, policy in policies.items()
            if policy.pool is not None
            and (policy.pool.instances or (name in stored.claims and stored.claims[name].held))
        }
        lost_instances = {
            name: lost
            for name in listed
            if (lost := _lost_instance(pool_ports.ports, stored.claims.get(name), by_id)) is not None
        }
    except ControllerError as error:
        return PoolReading(at, problem=" ".join(str(error).split()))
    missing = [member.instance for member in members if member.phase == "in_service" and member.instance not in by_id]
    if missing:
        return PoolReading(at, problem=f"EC2 does not show {missing[0]}, which is in service in its group")
    holders = {member.instance: groups[member.group] for member in members}
    holders.update({instance: name for name, claim in stored.claims.items() for instance in claim.held})
    by_cluster = {groups[group]: size for group, size in sizes.items()}
    closed_reasons = {name: why for name, decision in decisions.items() if (why := _closed_reason(decision))}
    return PoolReading(
        at, reserved, capacity, machines, holders, by_cluster, listed, retrying, lost_instances, closed_reasons
    )


def inputs_of(reading: PoolReading, policies: Mapping[str, ClusterPolicy], stored: StoredLedger) -> Inputs:
    """The inputs of the plan, in which all instances of the same kind are one line. Pure."""
    counted = Counter(
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
    usage = [line.model_copy(update={"count": count}) for line, count in counted.items()]
    return Inputs(
        at=reading.at,
        end_margin_seconds=max(
            (policy.pool.end_margin_seconds for policy in policies.values() if policy.pool is not None), default=0.0
        ),
        reserved=tuple(reading.reserved),
        capacity=tuple(reading.capacity),
        usage=tuple(sorted(usage, key=lambda line: line.model_dump_json())),
        pools=tuple(_pool(name, policy, reading, stored.claims.get(name)) for name, policy in sorted(policies.items())),
        claims=dict(stored.claims),
        problem=reading.problem,
    )


def _pool(cluster: str, policy: ClusterPolicy, reading: PoolReading, claim: Claim | None) -> Pool:
    assert policy.pool is not None
    fields = {name: getattr(policy.pool, name) for name in (*POLICY_FIELDS, *POLICY_TIMING_FIELDS)} | {
        "platform": platform_of(policy.pool.platform),
        "opens": opening.text if (opening := next_opening(policy.leave_windows, reading.at)) is not None else "",
        "closed": (closed := reading.closed_reasons.get(cluster, "")),
    }
    if cluster in reading.lost_instances:
        return Pool(
            cluster=cluster,
            current=kept_count(claim),
            frozen=f"EC2 does not show {reading.lost_instances[cluster]}, which the pool holds",
            **fields,
        )
    if policy.pool.instances:
        most = largest_size(reading.listed.get(cluster, ()), claim)
        return Pool(cluster=cluster, current=kept_count(claim), most=max(most, kept_count(claim)), **fields)
    group = group_of(policy)
    size = reading.sizes.get(cluster)
    if group is None:
        return Pool(cluster=cluster, frozen="pool.group: name one of the cluster's groups, or list instances", **fields)
    if size is None:
        return Pool(
            cluster=cluster, frozen=f"the group {group} does not exist, or another cluster's pool has it", **fields
        )
    growable = cluster not in reading.retrying
    # In a closed cluster, terminating a member also lowers the group's size. So the pool must not change the size.
    least = size.desired if closed else size.minimum
    return Pool(cluster=cluster, current=size.desired, least=least, most=size.maximum, growable=growable, **fields)


def _handles_failed_launches(ports: Ports, group: str) -> bool:
    """Whether the controller is handling failed launches of the group. Raising the capacity would undo the controller's
    response.
    """
    stored = ports.group_records.get(group)
    response = stored.facts.capacity if stored is not None else None
    return response is not None and (not response.done or response.wanted > response.desired)


def _closed_reason(decision: Decision) -> str:
    """Why the cluster cannot use any instance; "" when it can."""
    if decision.ending is not None:
        return decision.ending.reason.sentence
    return Reason.JOB_OVER.sentence if decision.job.over else ""


def _listed_instances(
    policy: ClusterPolicy,
    by_id: Mapping[str, SeenMachine],
    claim: Claim | None,
    elastic: ElasticTag,
    decision: Decision,
) -> tuple[ListedInstance, ...]:
    """The policy's instances, then held instances that are no longer listed and will be released."""
    assert policy.pool is not None
    key = elastic.of(policy.cluster)
    held = claim.held if claim is not None else ()
    releasing = claim.releasing if claim is not None else ()
    names = dict.fromkeys((*policy.pool.instances, *held))
    released_names = [name for name in names if name in releasing]
    left_names = _left_job(released_names, decision)
    listed = []
    for name in names:
        machine = by_id.get(name)
        if machine is not None:
            allowed = name in policy.pool.instances and _is_allowed(machine, policy.cluster, policy.pool)
            listed.append(ListedInstance(name, machine.state, key in machine.tags, allowed, name in left_names))
    return tuple(listed)


def _lost_instance(ports: Ports, claim: Claim | None, by_id: Mapping[str, SeenMachine]) -> str | None:
    """An instance that the pool holds but EC2 does not show; None when there is none. Instances that are known to be
    terminated, or that EC2 has not shown for long, do not count.
    """
    for name in claim.held if claim is not None else ():
        if name not in by_id:
            stored = ports.nodes.get(name)
            if stored is None or not (stored.facts.terminated or unseen_times(stored.facts) >= MAX_UNSEEN_CALLS):
                return name
    return None


def _is_allowed(machine: SeenMachine, cluster: str, pool: PoolPolicy) -> bool:
    actual = (machine.instance_type, platform_of(machine.platform), machine.tenancy, machine.lifecycle)
    expected = (pool.instance_type, platform_of(pool.platform), pool.tenancy, "on-demand")
    # an instance with the ownership tag would be terminated when it leaves
    tagged_for_cluster = machine.tags.get(POOL_TAG) == cluster and OWNER_TAG not in machine.tags
    return tagged_for_cluster and actual == expected and pool.zone in (None, machine.zone)


def _cluster_decision(ports: Ports, policy: ClusterPolicy, elastic: ElasticTag) -> Decision:
    """The cluster's state and target, as the controller itself derives them from the facts."""
    cluster = policy.cluster
    stored = ports.clusters.get(cluster)
    facts = [node.facts for node in ports.nodes.of_cluster(cluster).values()]
    return decide(
        facts, stored.membership, ports.jobs.get(cluster)[0], Rules(policy, elastic), ports.clock(), stored.published
    )


def _left_job(released_names: Sequence[str], decision: Decision) -> frozenset[str]:
    """The instances that are neither in the job nor in the target, once the controller knows that they were
    untagged.
    """
    nodes = {node.view.instance: node for node in decision.nodes}
    unknown = {name for name in released_names if name not in nodes}
    removed = {
        name
        for name in released_names
        if name in nodes and not nodes[name].view.elastic and nodes[name].standing.status in ("REMOVED", "GONE")
    }
    return frozenset(unknown | removed) - set(decision.membership.members)
