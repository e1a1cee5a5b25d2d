"""A read that returns, returns everything: all pages, all of the names that were asked for, and as things stand now.

Who is missing in a survey is taken for gone, and loses its tag's effect, its protection or its machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from dyntrain.controller.adapters.autoscaling import AutoScalingGroups
from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.adapters.dynamodb import TableClusters, TableGroups, TableNodes
from dyntrain.controller.adapters.ec2 import TEMPLATE_TAG, Ec2Instances
from dyntrain.controller.adapters.formats import format_attribute
from dyntrain.controller.adapters.items import group_item, node_item, trail_item
from dyntrain.controller.adapters.jobs import Ec2JobMachines, TableJobRecords
from dyntrain.controller.adapters.logs import CloudWatchLogs
from dyntrain.controller.adapters.reservations import Ec2Reservations
from dyntrain.controller.adapters.ssm import SsmParameters
from dyntrain.controller.adapters.stacks import AwsStacks
from dyntrain.controller.adapters.submission import AwsLauncher
from dyntrain.controller.contract.errors import RetryLater
from dyntrain.controller.core.history.trail import StatusChanged
from dyntrain.controller.core.records.facts import ClusterStatement, NodeFacts
from dyntrain.controller.core.records.groups import GroupFacts
from dyntrain.controller.jobs.record import JobRecord
from paged_aws import PAGE, PagedAws

COUNT = 4 * PAGE - 1  # the last page is not full
NAMES = [f"i-{number:017x}" for number in range(COUNT)]


@dataclass(frozen=True)
class Read:
    """`hold` makes what `operation` lists of a name, `found` are the names that `ask` knows afterwards. `given`:
    answers to what is asked before.
    """

    operation: str
    hold: Callable[[str], Mapping[str, Any]]
    ask: Callable[[Clients], Iterable[str]]
    given: Mapping[str, Mapping[str, Any]] | None = None


def instance(name: str, **more: Any) -> dict[str, Any]:
    return {"InstanceId": name, "InstanceType": "m5.large", "State": {"Name": "running"}, **more}


def reservation(name: str) -> dict[str, Any]:
    """Two machines that were launched together, as most of a job's are."""
    tags = [{"Key": TEMPLATE_TAG, "Value": "lt-1"}]
    return {"Instances": [instance(name, Tags=tags), instance(f"{name}b", Tags=tags)]}


def group(name: str, *members: str) -> dict[str, Any]:
    return {
        "AutoScalingGroupName": name,
        "MinSize": 0,
        "MaxSize": 1,
        "DesiredCapacity": 1,
        "Tags": [{"Key": "k", "Value": "demo"}],
        "Instances": [{"InstanceId": one, "LifecycleState": "InService"} for one in (members or (name, f"{name}b"))],
    }


def node(name: str) -> NodeFacts:
    return NodeFacts(instance=name, named=ClusterStatement(at=1.0, cluster="demo"))


def entry(name: str) -> StatusChanged:
    return StatusChanged(instance=name, before="", after="ADDED TRAINING")


def job(name: str) -> JobRecord:
    fields: dict[str, Any] = {"digest": "", "bucket": "b", "nodes": 1, "instance_type": "m5.large", "max_hours": 1.0}
    return JobRecord(name=name, submission="s", since=1.0, changed=1.0, **fields)


def job_item(name: str) -> dict[str, Any]:
    return {
        "pk": {"S": f"run#{name}"},
        "run": {"S": job(name).model_dump_json()},
        "version": {"N": "1"},
        **format_attribute(),
    }


def slots(name: str) -> dict[str, Any]:
    counts = {"TotalInstanceCount": 1, "AvailableInstanceCount": 1}
    return {"CapacityReservationId": name, "InstanceType": "m5.large", "AvailabilityZone": "x-1a", **counts}


READS = {
    "instances by tag": Read(
        "DescribeInstances", reservation, lambda c: (seen.instance for seen in Ec2Instances(c).tagged(["k"]))
    ),
    "instances by id": Read(
        "DescribeInstances", reservation, lambda c: (seen.instance for seen in Ec2Instances(c).by_id(["i-1"]))
    ),
    "instances of a template": Read(
        "DescribeInstances",
        reservation,
        lambda c: (seen.instance for seen in Ec2Instances(c).of_templates(["t"])["t"]),
        {"DescribeLaunchTemplates": {"LaunchTemplates": [{"LaunchTemplateId": "lt-1", "LaunchTemplateName": "t"}]}},
    ),
    "machines of a job": Read(
        "DescribeInstances", reservation, lambda c: (one.instance for one in Ec2JobMachines(c).of_runs(["token"]))
    ),
    "machines that use reservations": Read(
        "DescribeInstances", reservation, lambda c: (one.instance for one in Ec2Reservations(c).machines())
    ),
    "members of groups": Read(
        "DescribeAutoScalingGroups",
        group,
        lambda c: (member.instance for member in AutoScalingGroups(c).members(["g"])),
    ),
    "groups with a tag": Read(
        "DescribeAutoScalingGroups", lambda name: group(name, "i-1"), lambda c: AutoScalingGroups(c).tagged("k")
    ),
    "sizes of groups": Read(
        "DescribeAutoScalingGroups", lambda name: group(name, "i-1"), lambda c: AutoScalingGroups(c).sizes(["g"])
    ),
    "capacity reservations": Read(
        "DescribeCapacityReservations", slots, lambda c: (one.id for one in Ec2Reservations(c).capacity_reservations())
    ),
    "nodes of a cluster": Read(
        "Query", lambda name: node_item(node(name), 1, True, None), lambda c: TableNodes(c, "t").of_cluster("demo")
    ),
    "groups of a cluster": Read(
        "Query",
        lambda name: group_item(GroupFacts(group=name), 1, True),
        lambda c: TableGroups(c, "t").of_cluster("demo"),
    ),
    "jobs that are looked at": Read(
        "Query", job_item, lambda c: (stored.record.name for stored in TableJobRecords(c, "t").live_jobs())
    ),
    "all jobs": Read("Scan", job_item, lambda c: (stored.record.name for stored in TableJobRecords(c, "t").all())),
    "the audit trail": Read(
        "Query",
        lambda name: trail_item("demo", 5.0, name, [entry(name), entry(f"{name}b")], 9.0),
        lambda c: (item.entry.instance for item in TableClusters(c, "t").trail("demo", 0.0)),  # type: ignore[attr-defined]
    ),
    "policies": Read(
        "GetParametersByPath",
        lambda name: {"Name": f"/dyntrain/{name}/policy", "Value": "{}"},
        lambda c: SsmParameters(c).policies(),
    ),
    "stages": Read(
        "GetParametersByPath", lambda name: {"Name": name, "Value": "t"}, lambda c: SsmParameters(c).stages()
    ),
    "log streams": Read(
        "DescribeLogStreams", lambda name: {"logStreamName": name}, lambda c: CloudWatchLogs(c).streams("g", "demo")
    ),
    "log lines": Read(
        "FilterLogEvents",
        lambda name: {"timestamp": 1000, "logStreamName": "s", "message": name, "eventId": name},
        lambda c: (line.text for line in CloudWatchLogs(c).lines("g", ["s"], 0.0)),
    ),
    "what a job's attempt left": Read(
        "ListObjectsV2",
        lambda name: {"Key": name, "LastModified": datetime(2026, 1, 1, tzinfo=UTC)},
        lambda c: AwsLauncher(c).write_times(job("demo"), 1),
    ),
}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> PagedAws:
    return PagedAws(monkeypatch)


def listing(aws: PagedAws, read: Read) -> set[str]:
    """What there is to be found."""
    held = [read.hold(name) for name in NAMES]
    aws.holds[read.operation] = held
    aws.answers.update(
        {operation: lambda _request, answer=answer: answer for operation, answer in (read.given or {}).items()}
    )
    return {*NAMES, *(f"{name}b" for name in NAMES if f"{name}b" in str(held))}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_every_page_and_everything_on_it_counts(aws: PagedAws, read: Read) -> None:
    there = listing(aws, read)
    assert set(read.ask(aws.clients)) == there


@pytest.mark.parametrize("page", range(COUNT // PAGE + 1))
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_page_that_is_not_given_is_an_error_and_never_a_shorter_answer(aws: PagedAws, read: Read, page: int) -> None:
    listing(aws, read)
    aws.refuses[read.operation] = page
    with pytest.raises(RetryLater):
        set(read.ask(aws.clients))


def test_every_page_of_launch_templates_counts_too(aws: PagedAws) -> None:
    templates = [{"LaunchTemplateId": f"lt-{name}", "LaunchTemplateName": name} for name in NAMES]
    aws.holds["DescribeLaunchTemplates"] = templates
    aws.holds["DescribeInstances"] = [
        {"Instances": [instance(name, Tags=[{"Key": TEMPLATE_TAG, "Value": f"lt-{name}"}])]} for name in NAMES
    ]
    groups = Ec2Instances(aws.clients).of_templates(NAMES)
    assert {name: [seen.instance for seen in group] for name, group in groups.items()} == {n: [n] for n in NAMES}


def test_every_page_of_a_stacks_resources_counts_for_why_it_failed(aws: PagedAws) -> None:
    aws.answers["DescribeStacks"] = lambda _request: {"Stacks": [{"StackId": "s", "StackStatus": "CREATE_FAILED"}]}
    aws.holds["ListStackResources"] = [
        {"LogicalResourceId": name, "ResourceType": "T", "ResourceStatus": "CREATE_FAILED"} for name in NAMES
    ]
    stack = AwsStacks(aws.clients, "").stack("demo")
    assert stack is not None
    assert all(name in stack.reason for name in NAMES)


def test_keys_that_dynamodb_left_unread_are_read_in_the_end_or_nothing_is_answered(
    aws: PagedAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may answer a part of a batch at any time; a node that was left out would be taken for one without facts."""
    monkeypatch.setattr("dyntrain.controller.adapters.dynamodb.time.sleep", lambda _seconds: None)

    def some(call: Mapping[str, Any]) -> dict[str, Any]:
        request = call["RequestItems"]["t"]
        assert request["ConsistentRead"] is True
        given, left = request["Keys"][:given_a_time], request["Keys"][given_a_time:]
        items = [node_item(node(key["pk"]["S"].removeprefix("node#")), 1, False, None) for key in given]
        return {"Responses": {"t": items}, "UnprocessedKeys": {"t": {**request, "Keys": left}} if left else {}}

    aws.answers["BatchGetItem"] = some
    given_a_time = 2
    assert set(TableNodes(aws.clients, "t").get_many(NAMES)) == set(NAMES)
    given_a_time = 0
    with pytest.raises(RetryLater):
        TableNodes(aws.clients, "t").get_many(NAMES)
