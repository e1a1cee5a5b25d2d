"""Compute the cost of a cluster or a job from the audit trail, node facts, job records and files in S3."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.errors import ControllerError
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.history.bill import Bill, Span, bill, spans_after, spans_of, unmetered
from dyntrain.controller.core.history.trail import Metered, StatusChanged
from dyntrain.controller.core.views.view import Rules, view
from dyntrain.controller.jobs.ports import JobMachines
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.usage import usage
from dyntrain.controller.loops.converge import found_groups
from dyntrain.controller.loops.ports import Ports
from dyntrain.controller.loops.registry import Registry

TRAIL_DAYS = 30  # the table keeps entries of the audit trail for so long
MAX_NAMES = 5  # instances named in a note

Price = Callable[[str, str], float | None]  # (instance type, market) to dollars an hour


class WriteTimes(Protocol):
    """A source of the times at which the machines of an attempt last wrote their files in the bucket."""

    def write_times(self, record: JobRecord, attempt: int) -> dict[str, float]: ...


@dataclass(frozen=True)
class Usage:
    """The machine time of the cluster or job `name` from `start` to `now`. `notes` say which time is not counted."""

    kind: str
    name: str
    start: float
    now: float
    spans: tuple[Span, ...]
    notes: tuple[str, ...]


def cluster_usage(ports: Ports, registry: Registry, cluster: str, elastic: ElasticTag, since: float) -> Usage | None:
    """The cluster's usage; None for a cluster that is not registered and has no entries in the audit trail."""
    now = ports.clock()
    trail_start = now - TRAIL_DAYS * 86_400.0
    trail = [stored.entry for stored in ports.clusters.trail(cluster, trail_start)]
    policy = registry.policy(cluster)
    if policy is None and not trail:
        return None
    rules = Rules(policy or ClusterPolicy(cluster=cluster), elastic, found_groups(ports, registry, cluster))
    views = [view(node.facts, rules, now) for node in ports.nodes.of_cluster(cluster).values()]
    metered = [entry for entry in trail if isinstance(entry, Metered)]
    changes = [entry for entry in trail if isinstance(entry, StatusChanged)]
    trained = [entry.instance for entry in changes if entry.after.startswith("ADDED ")]
    start = max(since, trail_start)
    spans = spans_after(spans_of(metered, views, rules, trail_start), start)
    notes = []
    if cut_instances := _instances(span.instance for span in spans if span.start_unknown):
        notes.append(
            f"the audit trail covers {TRAIL_DAYS} days; earlier time of these instances is not counted: {cut_instances}"
        )
    if unrecorded := _instances(unmetered(metered, trained, views, rules)):
        notes.append(f"the audit trail has no entries of these instances, which are not counted: {unrecorded}")
    if policy is None and any(span.ended is None for span in spans):
        notes.append("the cluster is not registered any more: whether its last instances still run is unknown")
    return Usage("cluster", cluster, start, now, tuple(spans), tuple(notes))


def job_usage(machines: JobMachines, signs: WriteTimes, record: JobRecord, now: float) -> Usage:
    """The machine time of all attempts of the job."""
    notes, times = [], {}
    for attempt in range(1, record.attempt + 1):
        try:
            times[attempt] = signs.write_times(record, attempt)
        except ControllerError as error:
            notes.append(f"the files of attempt {attempt} in s3://{record.bucket} cannot be read: {error}")
    tokens = [record.model_copy(update={"attempt": attempt}).token for attempt in range(1, record.attempt + 1)]
    run_time = usage(record, times, machines.of_runs(tokens))
    if run_time.silent:
        silent = _shortened(f"{rank} of attempt {attempt}" for attempt, rank in run_time.silent)
        notes.append(f"these ranks left no file in the bucket, so their time is not counted: {silent}")
    return Usage(
        "job", record.name, min((span.began for span in run_time.spans), default=now), now, run_time.spans, (*notes,)
    )


def bills_for(usages: Iterable[Usage], price: Price, *, each: bool) -> list[tuple[Usage, Bill]]:
    """The usages with their bills. The price of each instance type and market is looked up once."""
    usages = list(usages)
    kinds = {(span.type, span.market) for used in usages for span in used.spans}
    prices = {kind: price(*kind) for kind in sorted(kinds)}
    return [(used, bill(used.spans, prices, used.now, per_instance=each)) for used in usages]


def as_data(used: Usage, costs: Bill) -> dict[str, Any]:
    """The bill for --json. Money is in dollars."""
    lines = [{**asdict(line), "cost": line.cost} for line in costs.lines]
    bill = {**asdict(costs), "lines": lines, "notes": list(used.notes)}
    return {"kind": used.kind, "name": used.name, "since": used.start, "until": used.now, **bill}


def _instances(names: Iterable[str]) -> str:
    return _shortened(sorted(set(names)))


def _shortened(names: Iterable[str]) -> str:
    all_names = list(names)
    omitted = f" and {len(all_names) - MAX_NAMES} more" if len(all_names) > MAX_NAMES else ""
    return ", ".join(all_names[:MAX_NAMES]) + omitted
