"""What AWS takes only so many of in one call is asked for or done in parts, which together are everything, once.

The limits are AWS's, as its documents of each call say; so a machine above the first fifty, hundred or five hundred is
seen, protected and ended like those below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from botocore.exceptions import ClientError
from dyntrain.controller.adapters.autoscaling import AutoScalingGroups
from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.adapters.dynamodb import TableClusters, TableNodes
from dyntrain.controller.adapters.ec2 import Ec2Instances
from dyntrain.controller.adapters.items import trail_of
from dyntrain.controller.adapters.jobs import Ec2JobMachines
from dyntrain.controller.adapters.logs import CloudWatchLogs
from dyntrain.controller.adapters.ssm import SsmParameters
from dyntrain.controller.contract.errors import RetryLater
from dyntrain.controller.core.history.trail import StatusChanged
from paged_aws import PagedAws

Names = list[str]


@dataclass(frozen=True)
class Parts:
    """`named` are the names of one request of `operation`, of which it takes `most`."""

    operation: str
    most: int
    do: Callable[[Clients, Names], object]
    named: Callable[[Mapping[str, Any]], Names]


def filtered(request: Mapping[str, Any]) -> Names:
    return list(request["Filters"][0]["Values"])


def keyed(request: Mapping[str, Any]) -> Names:
    return [key["pk"]["S"].removeprefix("node#") for key in request["RequestItems"]["t"]["Keys"]]


PARTS = {
    "protection": Parts(
        "SetInstanceProtection",
        50,
        lambda c, n: AutoScalingGroups(c).protect(n, "g"),
        lambda request: request["InstanceIds"],
    ),
    "members of groups": Parts(
        "DescribeAutoScalingGroups",
        50,
        lambda c, n: AutoScalingGroups(c).members(n),
        lambda request: request["AutoScalingGroupNames"],
    ),
    "sizes of groups": Parts(
        "DescribeAutoScalingGroups",
        50,
        lambda c, n: AutoScalingGroups(c).sizes(n),
        lambda request: request["AutoScalingGroupNames"],
    ),
    "instances by id": Parts("DescribeInstances", 200, lambda c, n: Ec2Instances(c).by_id(n), filtered),
    "instances by tag": Parts("DescribeInstances", 200, lambda c, n: Ec2Instances(c).tagged(n), filtered),
    "launch templates": Parts("DescribeLaunchTemplates", 200, lambda c, n: Ec2Instances(c).of_templates(n), filtered),
    "machines of jobs": Parts("DescribeInstances", 200, lambda c, n: Ec2JobMachines(c).of_runs(n), filtered),
    "nodes": Parts("BatchGetItem", 100, lambda c, n: TableNodes(c, "t").get_many(n), keyed),
    "log streams": Parts(
        "FilterLogEvents",
        100,
        lambda c, n: list(CloudWatchLogs(c).lines("g", n, 0.0)),
        lambda request: request["logStreamNames"],
    ),
    "tags": Parts(
        "CreateTags", 1000, lambda c, n: Ec2Instances(c).tag(n, "k", "v"), lambda request: request["Resources"]
    ),
    "untagging": Parts(
        "DeleteTags", 1000, lambda c, n: Ec2Instances(c).untag(n, "k"), lambda request: request["Resources"]
    ),
    "terminations": Parts(
        "TerminateInstances", 1000, lambda c, n: Ec2Instances(c).terminate(n), lambda request: request["InstanceIds"]
    ),
    "starts": Parts(
        "StartInstances", 1000, lambda c, n: Ec2Instances(c).start(n), lambda request: request["InstanceIds"]
    ),
    "reboots": Parts(
        "RebootInstances", 1000, lambda c, n: Ec2Instances(c).reboot(n), lambda request: request["InstanceIds"]
    ),
    "stops": Parts("StopInstances", 1000, lambda c, n: Ec2Instances(c).stop(n), lambda request: request["InstanceIds"]),
}


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> PagedAws:
    aws = PagedAws(monkeypatch)
    aws.answers["BatchGetItem"] = lambda _request: {"Responses": {}}
    return aws


@pytest.mark.parametrize("more", [-1, 0, 1], ids=["below", "at", "above"])
@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_all_of_the_names_are_in_one_call_each_and_no_call_has_too_many(
    aws: PagedAws, parts: Parts, times: int, more: int
) -> None:
    names = [f"i-{number:017x}" for number in range(times * parts.most + more)]
    parts.do(aws.clients, names)
    calls = [parts.named(request) for request in aws.requests(parts.operation)]
    done = [name for call in calls for name in call]
    assert (len(set(names) - set(done)), len(done)) == (0, len(names))
    assert all(0 < len(call) <= parts.most for call in calls)


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_a_part_that_is_refused_for_now_is_not_passed_over(aws: PagedAws, parts: Parts) -> None:
    aws.refuses[parts.operation] = 1
    with pytest.raises(RetryLater):
        parts.do(aws.clients, [f"i-{number:017x}" for number in range(2 * parts.most)])


def test_every_instance_that_is_protected_is_protected_from_its_groups_scale_in(aws: PagedAws) -> None:
    AutoScalingGroups(aws.clients).protect([f"i-{number:017x}" for number in range(60)], "g")
    requests = aws.requests("SetInstanceProtection")
    assert {(call["AutoScalingGroupName"], call["ProtectedFromScaleIn"]) for call in requests} == {("g", True)}


@pytest.mark.parametrize("count", [9, 10, 11, 20, 25])
def test_all_parameters_of_a_cluster_are_deleted_ten_at_a_time(aws: PagedAws, count: int) -> None:
    names = [f"/dyntrain/demo/{number:02}" for number in range(count)]
    aws.holds["GetParametersByPath"] = [{"Name": name} for name in names]
    aws.answers["DeleteParameters"] = lambda request: {"DeletedParameters": request["Names"]}
    assert SsmParameters(aws.clients).delete("demo") == names
    assert all(0 < len(call["Names"]) <= 10 for call in aws.requests("DeleteParameters"))


def test_a_burst_of_entries_of_any_size_is_in_the_trail_once_in_items_of_their_own(aws: PagedAws) -> None:
    """Two items of the same moment would overwrite each other, were they not named apart."""
    for count in (0, 1, 499, 500, 501, 1001):
        aws.calls.clear()
        why = "prepare-data ended with exit code 1: " + "no space left on device " * 20
        entries = [
            StatusChanged(instance=f"i-{number:08x}", before="", after="PREPARE_FAILED", detail=why)
            for number in range(count)
        ]
        TableClusters(aws.clients, "t").record("demo", 5.0, entries)
        items = [request["Item"] for request in aws.requests("PutItem")]
        assert sum(item["entries"]["S"].count('"instance"') for item in items) == count
        assert len({item["sk"]["S"] for item in items}) == len(items)
        assert all(len(item["entries"]["S"]) < 350_000 for item in items), "DynamoDB takes items of 400 KB"


@pytest.mark.parametrize("characters", ["x", "\N{SNOWMAN}"], ids=["ASCII", "others, which JSON spells out"])
def test_no_item_of_the_trail_outgrows_a_table_whatever_the_nodes_last_words_are(
    aws: PagedAws, characters: str
) -> None:
    """The acknowledgements are written before: what does not fit is lost for ever."""
    why = 2000 * characters
    entries = [StatusChanged(instance=f"i-{n:017x}", before="", after="PREPARE_FAILED", detail=why) for n in range(400)]
    TableClusters(aws.clients, "t").record("demo", 1.0, entries)
    items = [request["Item"] for request in aws.requests("PutItem")]
    assert max(sum(len(str(value)) + len(name) for name, value in item.items()) for item in items) < 400 * 1024
    assert [entry.entry for item in items for entry in trail_of(item)] == entries
    assert len({item["sk"]["S"] for item in items}) == len(items)


CAPACITY = ["InsufficientInstanceCapacity", "InsufficientReservedInstanceCapacity", "InsufficientHostCapacity"]


@pytest.mark.parametrize("code", CAPACITY)
@pytest.mark.parametrize("status", [400, 500, 503])
def test_one_machine_that_has_no_room_does_not_keep_the_others_from_starting(
    aws: PagedAws, code: str, status: int
) -> None:
    """EC2 refuses the whole call, with 500 as if it would pass."""
    names = [f"i-{number:017x}" for number in range(5)]
    started: list[str] = []

    def start(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if names[3] in request["InstanceIds"]:
            error: Any = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
            raise ClientError(error, "StartInstances")
        started.extend(request["InstanceIds"])
        return {}

    aws.answers["StartInstances"] = start
    batch = Ec2Instances(aws.clients).start(names)
    assert sorted(started) == [*names[:3], names[4]]
    assert set(batch.refused) == {names[3]}


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_that_fails_for_another_reason_is_asked_again_later(aws: PagedAws, status: int) -> None:
    aws.refuses["StartInstances"], aws.code, aws.status = 0, "AnythingElse", status
    with pytest.raises(RetryLater):
        Ec2Instances(aws.clients).start(["i-1"])
