"""Of two writers that have read the same version one writes, and the other learns of it, in every store of the table.

Each of them holds something that would be lost else without a trace: a node's fact, a target's revision, a report, a
group's capacity, whose turn it is to tell people, a claim on a reservation, a job that is being launched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.adapters.dynamodb import TableClusters, TableGroups, TableJobs, TableNodes, TableNotices
from dyntrain.controller.adapters.jobs import TableJobRecords
from dyntrain.controller.adapters.reservations import TableLedger
from dyntrain.controller.contract.errors import Conflict
from dyntrain.controller.contract.reports import JobReport
from dyntrain.controller.core.records.facts import NodeFacts
from dyntrain.controller.core.records.groups import GroupFacts, LaunchFailure
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.jobs.ports import StoredJob
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.loops.notify import StoredNotice
from dyntrain.controller.loops.ports import StoredGroup, StoredMembership, StoredNode, StoredTurn
from dyntrain.controller.pool.ports import StoredLedger
from moto_account import stored_table
from paged_aws import PagedAws

TABLE = "written-by-two"
NODE = "i-00000000000000001"


@dataclass(frozen=True)
class Store:
    """`put` writes over a version what only `number` tells apart; `get` reads version and number, None: no item."""

    put: Callable[[Clients, int, int], None]
    get: Callable[[Clients], tuple[int, int] | None]


def put_node(clients: Clients, version: int, number: int) -> None:
    facts = NodeFacts(instance=NODE, started_at=float(number))
    TableNodes(clients, TABLE).put(StoredNode(facts, version), wake=True, expires=None)


def get_node(clients: Clients) -> tuple[int, int] | None:
    node = TableNodes(clients, TABLE).get(NODE)
    return None if node is None else (node.version, int(node.facts.started_at))


def get_nodes(clients: Clients) -> tuple[int, int] | None:
    node = TableNodes(clients, TABLE).get_many([NODE]).get(NODE)
    return None if node is None else (node.version, int(node.facts.started_at))


def put_group(clients: Clients, version: int, number: int) -> None:
    facts = GroupFacts(group="g", failed=LaunchFailure(at=float(number)))
    TableGroups(clients, TABLE).put(StoredGroup(facts, version), wake=True)


def get_group(clients: Clients) -> tuple[int, int] | None:
    group = TableGroups(clients, TABLE).get("g")
    return None if group is None or group.facts.failed is None else (group.version, int(group.facts.failed.at))


def put_job(clients: Clients, version: int, number: int) -> None:
    fields: dict[str, Any] = {"state": "running", "started_at": 1.0, "generation": 0, "revision": 0, "members": ()}
    report = JobReport(cluster="demo", job="j", sequence=number, **fields)
    TableJobs(clients, TABLE).put("demo", JobFacts(report=report, heard_at=2.0), version, wake=True)


def get_job(clients: Clients) -> tuple[int, int] | None:
    job, version = TableJobs(clients, TABLE).get("demo")
    return None if job is None else (version, job.report.sequence)


def put_membership(clients: Clients, version: int, number: int) -> None:
    stored = StoredMembership(Membership(revision=number), published=0, version=version)
    TableClusters(clients, TABLE).put("demo", stored)


def get_membership(clients: Clients) -> tuple[int, int] | None:
    cluster = TableClusters(clients, TABLE).get("demo")
    return (cluster.version, cluster.membership.revision) if cluster.version else None


def put_turn(clients: Clients, version: int, number: int) -> None:
    turn = StoredTurn(number, until=1.5, left=frozenset({NODE}), version=version)
    TableClusters(clients, TABLE).put_turn("demo", turn)


def get_turn(clients: Clients) -> tuple[int, int] | None:
    turn = TableClusters(clients, TABLE).turn("demo")
    assert turn == StoredTurn() or (turn.until, turn.left) == (1.5, frozenset({NODE}))
    return (turn.version, turn.number) if turn.version else None


def put_notice(clients: Clients, version: int, number: int) -> None:
    TableNotices(clients, TABLE).put("m", StoredNotice("claimed", float(number), version))


def get_notice(clients: Clients) -> tuple[int, int] | None:
    notice = TableNotices(clients, TABLE).get("m")
    return None if notice is None else (notice.version, int(notice.at))


def put_ledger(clients: Clients, version: int, number: int) -> None:
    TableLedger(clients, TABLE).put(StoredLedger({}, float(number), version))


def get_ledger(clients: Clients) -> tuple[int, int] | None:
    ledger = TableLedger(clients, TABLE).get()
    return (ledger.version, int(ledger.at)) if ledger.version else None


def record(number: int) -> JobRecord:
    fields: dict[str, Any] = {"digest": "", "bucket": "b", "instance_type": "m5.large", "max_hours": 1.0}
    return JobRecord(name="mnist", submission="s", nodes=number, since=1.0, changed=1.0, **fields)


def put_record(clients: Clients, version: int, number: int) -> None:
    TableJobRecords(clients, TABLE).put(StoredJob(record(number), version), over=False)


def get_record(clients: Clients) -> tuple[int, int] | None:
    stored = TableJobRecords(clients, TABLE).get("mnist")
    return None if stored is None else (stored.version, stored.record.nodes)


STORES = {
    "node": Store(put_node, get_node),
    "nodes": Store(put_node, get_nodes),
    "group": Store(put_group, get_group),
    "job report": Store(put_job, get_job),
    "membership": Store(put_membership, get_membership),
    "turn": Store(put_turn, get_turn),
    "notice": Store(put_notice, get_notice),
    "ledger": Store(put_ledger, get_ledger),
    "job record": Store(put_record, get_record),
}


@pytest.fixture(scope="module", params=["moto", pytest.param("dynalite", marks=pytest.mark.dynalite)])
def store(request: pytest.FixtureRequest) -> Iterator[Clients]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "x")
        patch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
        clients = Clients(request.getfixturevalue("endpoint" if request.param == "moto" else "dynalite"))
        tables = stored_table(clients, TABLE)
        next(tables)
        yield clients
        next(tables, None)


@pytest.fixture
def empty(store: Clients) -> Clients:
    for item in store.dynamodb().scan(TableName=TABLE)["Items"]:
        store.dynamodb().delete_item(TableName=TABLE, Key={"pk": item["pk"], "sk": item["sk"]})
    return store


@pytest.mark.parametrize("kind", STORES.values(), ids=STORES)
def test_of_two_writers_of_one_version_the_second_is_told_and_changes_nothing(empty: Clients, kind: Store) -> None:
    assert kind.get(empty) is None
    for version in range(3):  # the first write, which finds nothing, and later ones
        first, second = 10 * version + 1, 10 * version + 2
        kind.put(empty, version, first)
        assert kind.get(empty) == (version + 1, first), "what was written is there, one version further"
        for stale in range(version + 1):
            with pytest.raises(Conflict):
                kind.put(empty, stale, second)
        with pytest.raises(Conflict):
            kind.put(empty, version + 2, second)
        assert kind.get(empty) == (version + 1, first)


@pytest.mark.parametrize("kind", STORES.values(), ids=STORES)
def test_what_was_deleted_meanwhile_does_not_come_back_by_a_write_over_it(empty: Clients, kind: Store) -> None:
    with pytest.raises(Conflict):
        kind.put(empty, 1, 1)
    assert kind.get(empty) is None


def test_a_job_that_somebody_has_taken_up_is_not_deleted_by_who_gave_it_up(empty: Clients) -> None:
    put_record(empty, 0, 1)
    put_record(empty, 1, 2)
    for stale in (1, 3):
        with pytest.raises(Conflict):
            TableJobRecords(empty, TABLE).delete(StoredJob(record(1), stale))
    assert get_record(empty) == (2, 2)
    TableJobRecords(empty, TABLE).delete(StoredJob(record(2), 2))
    assert get_record(empty) is None
    with pytest.raises(Conflict):
        TableJobRecords(empty, TABLE).delete(StoredJob(record(2), 2))


@pytest.mark.parametrize("kind", STORES.values(), ids=STORES)
def test_what_is_read_to_be_written_over_is_read_as_it_stands_now(monkeypatch: pytest.MonkeyPatch, kind: Store) -> None:
    """By default DynamoDB may answer with what was there a moment ago: a termination would be confirmed by the very
    reading that it was planned on.
    """
    aws = PagedAws(monkeypatch)
    aws.answers["BatchGetItem"] = lambda _request: {"Responses": {}}
    kind.get(aws.clients)
    one, many = aws.requests("GetItem"), aws.requests("BatchGetItem")
    requests = [*one, *(part for call in many for part in call["RequestItems"].values())]
    assert [request.get("ConsistentRead") for request in requests] == [True]
