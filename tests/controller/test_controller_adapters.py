"""The adapters against moto's server with real boto3: what the fakes claim must hold of AWS's API too. The table's are
asked of dynalite as well, which others wrote, and which refuses what DynamoDB refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from dyntrain.controller.adapters import aws
from dyntrain.controller.adapters.autoscaling import AutoScalingGroups
from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.adapters.dynamodb import TableClusters, TableJobs, TableNodes
from dyntrain.controller.adapters.ec2 import Ec2Instances
from dyntrain.controller.adapters.items import wake_of
from dyntrain.controller.adapters.ssm import SsmParameters
from dyntrain.controller.contract.errors import Conflict, Misconfigured, Refused, RetryLater
from dyntrain.controller.contract.messages import Target
from dyntrain.controller.contract.reports import JobReport
from dyntrain.controller.core.history.trail import StatusChanged
from dyntrain.controller.core.records.acks import Acks, Announcement
from dyntrain.controller.core.records.facts import ClusterStatement, NodeFacts
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.loops.ports import Batch, StoredNode
from moto_account import stored_table
from moto_server import any_image

TABLE = "facts-under-test"


@pytest.fixture
def clients(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Clients:
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("AWS_DEFAULT_REGION", "eu-central-1"),
    ):
        monkeypatch.setenv(name, value)
    boto3.setup_default_session()
    return Clients(endpoint)


@pytest.fixture(params=["moto", pytest.param("dynalite", marks=pytest.mark.dynalite)])
def store(request: pytest.FixtureRequest, clients: Clients) -> Clients:
    return clients if request.param == "moto" else Clients(request.getfixturevalue("dynalite"))


@pytest.fixture
def table(store: Clients) -> Iterator[str]:
    yield from stored_table(store, TABLE)


@pytest.fixture
def table_with_stream(clients: Clients) -> Iterator[str]:
    yield from stored_table(clients, TABLE)


def node(number: int, cluster: str = "demo") -> NodeFacts:
    return NodeFacts(
        instance=f"i-{number:017x}",
        named=ClusterStatement(at=1.5, cluster=cluster),
        acks=Acks(mirror=Announcement(at=2.25, value="ADDED")),
    )


def launched(clients: Clients, count: int, **tags: str) -> list[str]:
    image = any_image(clients.ec2())
    specification: Any = [
        {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
    ]
    answer = clients.ec2().run_instances(ImageId=image, MinCount=count, MaxCount=count, TagSpecifications=specification)
    return [instance["InstanceId"] for instance in answer["Instances"]]


def test_facts_come_back_from_the_table_as_they_went_in(store: Clients, table: str) -> None:
    nodes = TableNodes(store, table)
    nodes.put(StoredNode(node(1), 0), wake=True, expires=None)
    assert nodes.get(node(1).instance) == StoredNode(node(1), 1)
    assert nodes.get("i-00000000") is None


def test_a_write_over_another_version_is_a_conflict_and_changes_nothing(store: Clients, table: str) -> None:
    nodes = TableNodes(store, table)
    nodes.put(StoredNode(node(1), 0), wake=True, expires=None)
    for version in (0, 7):
        with pytest.raises(Conflict):
            nodes.put(StoredNode(node(1, "other"), version), wake=True, expires=None)
    assert nodes.get(node(1).instance) == StoredNode(node(1), 1)


def test_the_index_finds_the_nodes_of_one_cluster_and_batches_read_more_than_one_page(
    store: Clients, table: str
) -> None:
    nodes = TableNodes(store, table)
    for number in range(120):
        nodes.put(StoredNode(node(number, "demo" if number % 2 else "other"), 0), wake=False, expires=99.0)
    assert len(nodes.of_cluster("demo")) == 60
    assert len(nodes.get_many(node(number).instance for number in range(130))) == 120


def test_membership_and_job_survive_the_table_with_compare_and_set(store: Clients, table: str) -> None:
    clusters, jobs = TableClusters(store, table), TableJobs(store, table)
    empty = clusters.get("demo")
    full = Membership(
        revision=3, members=(node(1).instance,), leave_by={node(2).instance: 9.5}, leaving={node(2).instance: 3}
    )
    clusters.put("demo", replace(empty, membership=full, published=2))
    assert clusters.get("demo") == replace(empty, membership=full, published=2, version=1)
    with pytest.raises(Conflict):
        clusters.put("demo", empty)
    pk, _, sk = clusters.members_item_key("demo").partition("/")
    item = store.dynamodb().get_item(TableName=table, Key={"pk": {"S": pk}, "sk": {"S": sk}})["Item"]
    assert item["members"] == {"L": [{"S": node(1).instance}]}
    report = JobReport(
        cluster="demo", job="j", state="running", started_at=1.0, sequence=1, generation=0, revision=0, members=()
    )
    jobs.put("demo", JobFacts(report=report, heard_at=2.0), 0, wake=True)
    assert jobs.get("demo") == (JobFacts(report=report, heard_at=2.0), 1)


def test_a_burst_of_entries_fits_into_the_items_of_the_audit_trail(store: Clients, table: str) -> None:
    clusters = TableClusters(store, table)
    why = "prepare-data ended with exit code 1: " + "no space left on device " * 20
    entries = [
        StatusChanged(instance=node(number).instance, before="WAITING NEW", after="PREPARE_FAILED FAILED", detail=why)
        for number in range(1200)
    ]
    clusters.record("demo", 1000.0, entries)
    assert sorted(item.entry.instance for item in clusters.trail("demo", 0.0)) == [one.instance for one in entries]


def test_the_stream_wakes_for_facts_and_ticks_and_not_for_acknowledgements(
    clients: Clients, table_with_stream: str
) -> None:
    table = table_with_stream
    nodes, clusters = TableNodes(clients, table), TableClusters(clients, table)
    nodes.put(StoredNode(node(1), 0), wake=True, expires=None)
    nodes.put(StoredNode(node(1), 1), wake=False, expires=None)
    clusters.tick("demo", 5.0, surveyed=True)
    clusters.record("demo", 5.0, [StatusChanged(instance="i-1", before="", after="ADDED TRAINING")])
    streams = boto3.client("dynamodbstreams", endpoint_url=clients.dynamodb().meta.endpoint_url)
    arn = clients.dynamodb().describe_table(TableName=table)["Table"]["LatestStreamArn"]
    shard = streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"][0]["ShardId"]
    iterator = streams.get_shard_iterator(StreamArn=arn, ShardId=shard, ShardIteratorType="TRIM_HORIZON")[
        "ShardIterator"
    ]
    records = [record["dynamodb"] for record in streams.get_records(ShardIterator=iterator)["Records"]]
    wake = wake_of(records)
    assert len(records) == 4
    assert {name: stored.version for name, stored in wake.nodes.items()} == {node(1).instance: 1}
    assert (wake.ticked, wake.surveyed, wake.clusters) == ({"demo"}, {"demo"}, frozenset())


def test_policies_are_found_among_all_parameters_and_the_target_is_read_back(clients: Clients) -> None:
    parameters = SsmParameters(clients)
    for number in range(12):
        clients.ssm().put_parameter(
            Name=f"/dyntrain/c{number}/policy", Value=f'{{"cluster": "c{number}"}}', Type="String"
        )
    clients.ssm().put_parameter(Name="/dyntrain/c1/token", Value="secret", Type="SecureString")
    assert len(parameters.policies()) == 12
    assert parameters.target("c1") is None
    parameters.put_target("c1", Target.of(4, (node(1).instance,)), "somewhere")
    assert Target.model_validate_json(parameters.target("c1") or "").revision == 4


def test_instances_are_described_with_their_tags_and_unknown_ids_do_not_spoil_a_batch(clients: Clients) -> None:
    instances = Ec2Instances(clients)
    ours, others = launched(clients, 3, **{"dyntrain:cluster": "demo"}), launched(clients, 2, Name="web")
    assert {seen.instance for seen in instances.tagged(["dyntrain:cluster", "nobody-has-this"])} >= set(ours)
    assert not {seen.instance for seen in instances.tagged(["dyntrain:cluster"])} & set(others)
    ghost = "i-0123456789abcdef0"
    assert {seen.instance for seen in instances.by_id([*ours, ghost])} == set(ours)
    assert instances.tag(ours[:2], "elastic_worker_status", "ADDED") == Batch()
    assert {seen.tags.get("elastic_worker_status") for seen in instances.by_id(ours[:2])} == {"ADDED"}
    assert instances.terminate([ghost, ours[0]]) == Batch(frozenset({ghost}))
    assert instances.by_id([ours[0]])[0].state in ("shutting-down", "terminated")


def test_instances_of_a_launch_template_are_found_whatever_became_of_their_tags(clients: Clients) -> None:
    ec2, image = clients.ec2(), any_image(clients.ec2())
    instances = {}
    for name in ("of-demo", "of-others"):
        ec2.create_launch_template(
            LaunchTemplateName=name, LaunchTemplateData={"ImageId": image, "InstanceType": "t3.small"}
        )
        instances[name] = ec2.run_instances(LaunchTemplate={"LaunchTemplateName": name}, MinCount=1, MaxCount=1)[
            "Instances"
        ][0]["InstanceId"]
    groups = Ec2Instances(clients).of_templates(["of-demo", "no-such-template"])
    assert {name: [seen.instance for seen in group] for name, group in groups.items()} == {
        "of-demo": [instances["of-demo"]]
    }
    assert Ec2Instances(clients).of_templates(["no-such-template"]) == {}


def test_an_id_that_ec2_refuses_is_set_aside_and_the_others_are_tagged_all_the_same(clients: Clients) -> None:
    ours, ghost = "i-00000000000000001", "i-0123456789abcdef0"
    with Stubber(clients.ec2()) as stub:
        stub.add_client_error(
            "create_tags",
            "InvalidInstanceID.NotFound",
            f"The instance ID '{ghost}' does not exist",
            http_status_code=400,
        )
        stub.add_response("create_tags", {}, {"Resources": [ours], "Tags": [{"Key": "k", "Value": "v"}]})
        assert Ec2Instances(clients).tag([ours, ghost], "k", "v") == Batch(frozenset({ghost}))
        stub.assert_no_pending_responses()


def test_a_tag_is_not_sent_again_once_its_time_is_over(endpoint: str, clients: Clients, monkeypatch: Any) -> None:
    """A throttled write is repeated by botocore, which knows nothing of turns: it would come after another run's."""
    patient, now, sent = Clients(endpoint, attempts=4), [100.0], list[float]()
    monkeypatch.setattr(aws, "time", SimpleNamespace(time=lambda: now[0]))

    def throttled(request: Any, **_: Any) -> AWSResponse:
        sent.append(now[0])
        now[0] += 10.0
        error = b"<Error><Code>RequestLimitExceeded</Code><Message>no</Message></Error>"
        body = b"<Response><Errors>%s</Errors></Response>" % error
        return AWSResponse(request.url, 503, {}, SimpleNamespace(stream=lambda: iter([body]), read=lambda: body))

    patient.ec2().meta.events.register("before-send.ec2.CreateTags", throttled)
    instances = Ec2Instances(patient)
    with pytest.raises(RetryLater, match="no more requests are sent"):
        instances.tag(["i-00000000000000001"], "k", "v", until=115.0)
    assert sent == [100.0, 110.0]
    with pytest.raises(RetryLater, match="RequestLimitExceeded"):
        instances.tag(["i-00000000000000001"], "k", "v")
    assert len(sent) == 2 + 4, "without such a bound it is tried as often as ever"
    assert instances.by_id(["i-00000000000000001"]) == [], "what is read has no such bound"


class Refusing:
    """`create_tags` as EC2 answers it: all or nothing."""

    def __init__(self, *bad: str, code: str = "UnauthorizedOperation") -> None:
        self.bad, self.code, self.calls, self.tagged = set(bad), code, 0, set[str]()

    def __call__(self, batch: Sequence[str]) -> None:
        self.calls += 1
        if self.bad & set(batch):
            raise ClientError({"Error": {"Code": self.code, "Message": "You are not authorized"}}, "CreateTags")
        self.tagged.update(batch)


@pytest.mark.parametrize("code", ["UnauthorizedOperation", "OperationNotPermitted", "TagLimitExceeded"])
def test_one_refused_instance_of_five_hundred_does_not_keep_the_others_from_being_done(
    clients: Clients, code: str
) -> None:
    every = [f"i-{number:017x}" for number in range(600)]
    call = Refusing(every[123], every[555], code=code)
    batch = Ec2Instances(clients).call_in_batches(every, call, "tagging")
    assert call.tagged == set(every) - {every[123], every[555]}
    assert set(batch.refused) == {every[123], every[555]}
    assert code in batch.refused[every[123]]
    assert call.calls < 50


def test_nobody_is_asked_one_by_one_who_may_do_nothing_at_all(clients: Clients) -> None:
    every = [f"i-{number:017x}" for number in range(500)]
    call = Refusing(*every)
    assert set(Ec2Instances(clients).call_in_batches(every, call, "tagging").refused) == set(every)
    assert call.calls < 40


def test_a_stale_lifecycle_token_counts_as_done_and_any_other_refusal_does_not(clients: Clients) -> None:
    groups = AutoScalingGroups(clients)
    with Stubber(clients.autoscaling()) as stub:
        for operation in ("complete_lifecycle_action", "record_lifecycle_action_heartbeat"):
            stub.add_client_error(
                operation, "ValidationError", "No active Lifecycle Action found with token t-1", http_status_code=400
            )
        assert (
            groups.complete_action("i-00000001", "g", "h", "t-1-is-long-enough-for-the-api-model", "CONTINUE") is False
        )
        assert groups.heartbeat("i-00000001", "g", "h", "t-1-is-long-enough-for-the-api-model") is False
        stub.add_client_error(
            "complete_lifecycle_action", "ValidationError", "Group name not found", http_status_code=400
        )
        with pytest.raises(Refused, match="hook h of i-00000001 in g"):
            groups.complete_action("i-00000001", "g", "h", None, "CONTINUE")


def test_an_instance_that_its_group_does_not_know_was_not_ended_by_it(clients: Clients) -> None:
    with Stubber(clients.autoscaling()) as stub:
        ask = {"InstanceId": "i-00000001", "ShouldDecrementDesiredCapacity": False}
        stub.add_client_error(
            "terminate_instance_in_auto_scaling_group",
            "ValidationError",
            "Instance Id not found - No managed instance found for instance ID: i-00000001",
            http_status_code=400,
            expected_params=ask,
        )
        assert AutoScalingGroups(clients).terminate("i-00000001", "g", decrement=False) is False


def test_group_members_hooks_protection_and_termination_with_decrement(clients: Clients) -> None:
    scaling, groups = clients.autoscaling(), AutoScalingGroups(clients)
    image = any_image(clients.ec2())
    clients.ec2().create_launch_template(
        LaunchTemplateName="demo-template", LaunchTemplateData={"ImageId": image, "InstanceType": "t3.small"}
    )
    scaling.create_auto_scaling_group(
        AutoScalingGroupName="demo-workers",
        MinSize=0,
        MaxSize=3,
        DesiredCapacity=2,
        AvailabilityZones=["eu-central-1a"],
        LaunchTemplate={"LaunchTemplateName": "demo-template"},
    )
    scaling.put_lifecycle_hook(
        LifecycleHookName="demo-launch",
        AutoScalingGroupName="demo-workers",
        LifecycleTransition="autoscaling:EC2_INSTANCE_LAUNCHING",
    )
    members = groups.members(["demo-workers", "no-such-group"])
    assert [(member.group, member.phase, member.waits) for member in members] == [
        ("demo-workers", "in_service", None)
    ] * 2
    assert groups.hooks("demo-workers") == {"demo-launch": "launch"}
    groups.protect([members[0].instance], "demo-workers")
    groups.terminate(members[1].instance, "demo-workers", decrement=True)
    assert [member.instance for member in groups.members(["demo-workers"])] == [members[0].instance]


def test_an_unreachable_endpoint_and_a_missing_table_are_told_apart(clients: Clients) -> None:
    with pytest.raises(RetryLater, match="reading node#"):
        TableNodes(Clients("http://127.0.0.1:9", attempts=1), "t").get("i-00000000")
    with pytest.raises(Refused, match="ResourceNotFoundException"):
        TableNodes(clients, "no-such-table").get("i-00000000")


def test_a_missing_region_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    boto3.setup_default_session()
    with pytest.raises(Misconfigured, match="no AWS region"):
        Clients().ec2()
