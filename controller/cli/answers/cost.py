"""The cost of a cluster or a job: from the trail, the nodes' facts, a job's record and its files in the bucket."""

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

TRAIL_DAYS = 30  # how long the table keeps it
NAMED = 5  # instances named in a note

Price = Callable[[str, str], float | None]  # of a type in a market


class Signs(Protocol):
    def signs(self, record: JobRecord, attempt: int) -> dict[str, float]: ...


@dataclass(frozen=True)
class Usage:
    """What ran on account of `name` between `start` and `now`; `notes` say what is unknown."""

    kind: str
    name: str
    start: float
    now: float
    spans: tuple[Span, ...]
    notes: tuple[str, ...]


def of_cluster(ports: Ports, registry: Registry, cluster: str, elastic: ElasticTag, since: float) -> Usage | None:
    """The cluster's usage; None: there is no such cluster, and the trail has nothing of it. A cluster that is no longer
    registered still has its trail.
    """
    now = ports.clock()
    begins = now - TRAIL_DAYS * 86_400.0
    trail = [stored.entry for stored in ports.clusters.trail(cluster, begins)]
    policy = registry.policy(cluster)
    if policy is None and not trail:
        return None
    rules = Rules(policy or ClusterPolicy(cluster=cluster), elastic, found_groups(ports, registry, cluster))
    views = [view(node.facts, rules, now) for node in ports.nodes.of_cluster(cluster).values()]
    metered = [entry for entry in trail if isinstance(entry, Metered)]
    changes = [entry for entry in trail if isinstance(entry, StatusChanged)]
    trained = [entry.instance for entry in changes if entry.after.startswith("ADDED ")]
    start = max(since, begins)
    spans = spans_after(spans_of(metered, views, rules, begins), start)
    notes = []
    if cut := _instances(span.instance for span in spans if span.start_unknown):
        notes.append(f"the trail goes back {TRAIL_DAYS} days; these ran before that too, which is not counted: {cut}")
    if missing := _instances(unmetered(metered, trained, views, rules)):
        notes.append(f"nothing is written down of these yet, or any more, which are not counted: {missing}")
    if policy is None and any(span.ended is None for span in spans):
        notes.append("the cluster is not registered any more: nobody has heard whether what ran then still runs")
    return Usage("cluster", cluster, start, now, tuple(spans), tuple(notes))


def of_job(machines: JobMachines, signs: Signs, record: JobRecord, now: float) -> Usage:
    """The usage of all attempts of the job."""
    notes, left = [], {}
    for attempt in range(1, record.attempt + 1):
        try:
            left[attempt] = signs.signs(record, attempt)
        except ControllerError as error:
            notes.append(f"what attempt {attempt} left in s3://{record.bucket} cannot be read: {error}")
    tokens = [record.model_copy(update={"attempt": attempt}).token for attempt in range(1, record.attempt + 1)]
    run_time = usage(record, left, machines.of_runs(tokens))
    if run_time.silent:
        silent = _few(f"{rank} of attempt {attempt}" for attempt, rank in run_time.silent)
        notes.append(f"these ranks left no word, so what they ran is not counted: {silent}")
    return Usage(
        "job", record.name, min((span.began for span in run_time.spans), default=now), now, run_time.spans, (*notes,)
    )


def priced(usages: Iterable[Usage], price: Price, *, each: bool) -> list[tuple[Usage, Bill]]:
    """The bills. Each price is looked up once."""
    usages = list(usages)
    kinds = {(span.type, span.market) for one in usages for span in one.spans}
    prices = {kind: price(*kind) for kind in sorted(kinds)}
    return [(one, bill(one.spans, prices, one.now, per_instance=each)) for one in usages]


def as_data(one: Usage, costs: Bill) -> dict[str, Any]:
    """The bill for --json. Money is in dollars."""
    lines = [{**asdict(line), "cost": line.cost} for line in costs.lines]
    bill = {**asdict(costs), "lines": lines, "notes": list(one.notes)}
    return {"kind": one.kind, "name": one.name, "since": one.start, "until": one.now, **bill}


def _instances(names: Iterable[str]) -> str:
    return _few(sorted(set(names)))


def _few(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - NAMED} more" if len(every) > NAMED else ""
    return ", ".join(every[:NAMED]) + more
