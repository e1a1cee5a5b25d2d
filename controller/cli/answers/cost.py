"""Compute the cost of a cluster or a job from the audit trail, node facts, job records and files in S3."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import ControllerError
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.history.bill import Bill, Span, bill, spans_after, spans_of, unmetered_instances
from dyntrain.controller.core.history.trail import Metered, StatusChanged
from dyntrain.controller.core.views.view import Rules, view
from dyntrain.controller.jobs.ports import JobMachines
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.usage import compute_usage
from dyntrain.controller.loops.converge import found_groups
from dyntrain.controller.loops.ports import Ports
from dyntrain.controller.loops.registry import Registry

TRAIL_DAYS = 30  # the DynamoDB table keeps an entry of the audit trail for so many days
MAX_NAMES = 5  # at most so many instances are named in a note

Price = Callable[[str, str], float | None]  # a function from (instance type, market) to dollars an hour


class WriteTimes(Protocol):
    """A source of the times at which the machines of a job attempt last wrote their files to the job's S3 bucket."""

    def write_times(self, record: JobRecord, attempt: int) -> dict[str, float]: ...  # of the last write, by file


@dataclass(frozen=True)
class Usage:  # of machines
    """The machine time of a cluster or job from `start` to `now`. The field `notes` says which machine time is not
    counted.
    """

    kind: str  # "cluster" or "job"
    name: str  # of the cluster or job
    start: float  # of the period, in seconds since the epoch
    now: float  # end of the period, in seconds since the epoch
    spans: tuple[Span, ...]  # the periods in which its instances ran
    notes: tuple[str, ...]  # sentences about machine time that is not counted


def cluster_usage(ports: Ports, registry: Registry, cluster: str, elastic: ElasticTag, since: float) -> Usage | None:
    """The machine time of the cluster's instances since the time `since`. The result is None for a cluster that is not
    registered and has no entries in the audit trail.
    """
    now = ports.clock()
    trail_start = now - TRAIL_DAYS * 86_400.0
    trail = [stored_entry.entry for stored_entry in ports.clusters.trail(cluster, trail_start)]
    policy = registry.policy(cluster)
    if policy is None and not trail:
        return None
    rules = Rules(policy or ClusterPolicy(cluster=cluster), elastic, found_groups(ports, registry, cluster))
    node_views = [view(node.facts, rules, now) for node in ports.nodes.of_cluster(cluster).values()]
    metered_entries = [entry for entry in trail if isinstance(entry, Metered)]
    status_changes = [entry for entry in trail if isinstance(entry, StatusChanged)]
    trained_instances = [entry.instance for entry in status_changes if entry.after.startswith("ADDED ")]
    start = max(since, trail_start)
    instance_spans = spans_after(spans_of(metered_entries, node_views, rules, trail_start), start)
    notes = []
    if early_instances_text := _instances_text(span.instance for span in instance_spans if span.start_unknown):
        notes.append(
            f"the audit trail covers {TRAIL_DAYS} days; earlier time of these instances is not counted: "
            f"{early_instances_text}"
        )
    if unrecorded_text := _instances_text(unmetered_instances(metered_entries, trained_instances, node_views, rules)):
        notes.append(f"the audit trail has no entries of these instances, which are not counted: {unrecorded_text}")
    if policy is None and any(span.ended is None for span in instance_spans):
        notes.append("the cluster is not registered any more: whether its last instances still run is unknown")
    return Usage("cluster", cluster, start, now, tuple(instance_spans), tuple(notes))


def job_usage(machines: JobMachines, write_times_source: WriteTimes, record: JobRecord, now: float) -> Usage:
    """The machine time of all attempts of the job."""
    notes, write_times = [], {}
    for attempt in range(1, record.attempt + 1):
        try:
            write_times[attempt] = write_times_source.write_times(record, attempt)
        except ControllerError as error:
            notes.append(f"the files of attempt {attempt} in s3://{record.bucket} cannot be read: {error}")
    attempt_tokens = [record.model_copy(update={"attempt": attempt}).token for attempt in range(1, record.attempt + 1)]
    machine_time = compute_usage(record, write_times, machines.of_runs(attempt_tokens))
    if machine_time.silent:
        silent_ranks_text = _shortened_text(f"{rank} of attempt {attempt}" for attempt, rank in machine_time.silent)
        notes.append(f"these ranks left no file in the bucket, so their time is not counted: {silent_ranks_text}")
    return Usage(
        "job",
        record.name,
        min((span.began for span in machine_time.spans), default=now),
        now,
        machine_time.spans,
        (*notes,),
    )


def bills_for(usages: Iterable[Usage], price: Price, *, per_instance: bool) -> list[tuple[Usage, Bill]]:
    """Return each usage of machine time together with the usage's bill. The price of an instance type and market is
    looked up only once.
    """
    usages = list(usages)
    types_and_markets = {(span.type, span.market) for machine_usage in usages for span in machine_usage.spans}
    prices = {type_and_market: price(*type_and_market) for type_and_market in sorted(types_and_markets)}
    return [
        (machine_usage, bill(machine_usage.spans, prices, machine_usage.now, per_instance=per_instance))
        for machine_usage in usages
    ]


def usage_data(machine_usage: Usage, costs: Bill) -> dict[str, Any]:
    """The bill as the JSON data that `dyntrain cost --json` prints. Amounts of money are in dollars."""
    bill_lines = [{**asdict(bill_line), "cost": bill_line.cost} for bill_line in costs.lines]
    bill_data = {**asdict(costs), "lines": bill_lines, "notes": list(machine_usage.notes)}
    return {
        "kind": machine_usage.kind,
        "name": machine_usage.name,
        "since": machine_usage.start,
        "until": machine_usage.now,
        **bill_data,
    }


def _instances_text(names: Iterable[str]) -> str:
    return _shortened_text(sorted(set(names)))


def _shortened_text(names: Iterable[str]) -> str:
    all_names = list(names)
    omitted_text = f" and {len(all_names) - MAX_NAMES} more" if len(all_names) > MAX_NAMES else ""
    return ", ".join(all_names[:MAX_NAMES]) + omitted_text
