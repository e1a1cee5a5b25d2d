"""`dyntrain cluster`, `events` and `explain`, as people type them, against moto's server; and the adapters behind them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
import yaml
from click.testing import CliRunner, Result
from moto.server import ThreadedMotoServer

from controller.adapters.autoscaling import AutoScalingGroups
from controller.adapters.aws import Clients
from controller.adapters.dynamodb import TableClusters, TableGroups, TableNodes
from controller.cli import main
from controller.errors import Conflict, Refused, RetryLater
from controller.facts import Ack, GroupEvent, Hook, Named, NodeFacts, Notice, Preparation, StateRead, TagsEvent, TagsRead
from controller.groups import GroupFacts, GroupSize, LaunchFailure
from controller.ports import StoredGroup, StoredNode

TABLE = "facts-of-commands"
RESOURCES = Path(__file__).parents[2] / ".chalice" / "resources.yaml"
KEYS = ("BillingMode", "AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes")
NODE = "i-0aaaaaaaaaaaaaaa1"
AT = 1_700_000_000.0
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def clients(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clients]:
    """In a region of its own: all moto servers of a process share their accounts."""
    variables = {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "eu-west-3",
        "AWS_ENDPOINT_URL": endpoint,
        "DYNTRAIN_TABLE": TABLE,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    boto3.setup_default_session()
    clients = Clients(endpoint, attempts=1)
    properties = yaml.safe_load(RESOURCES.read_text())["Resources"]["FactsTable"]["Properties"]
    clients.dynamodb().create_table(TableName=TABLE, **{key: properties[key] for key in KEYS})
    yield clients
    clients.dynamodb().delete_table(TableName=TABLE)
    for parameter in clients.ssm().describe_parameters()["Parameters"]:
        clients.ssm().delete_parameter(Name=parameter["Name"])


@pytest.fixture
def run(clients: Clients) -> Run:
    return lambda *arguments: CliRunner().invoke(main, arguments)


def test_a_cluster_is_created_shown_listed_replaced_and_deleted(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "policy.json"
    config.write_text(json.dumps({"cluster": "from-file", "min_workers": 2}))
    assert run("cluster", "create", "demo", "--group", "a", "--group", "b", "--max-workers", "9", "--set", "terminate_orphans=true").exit_code == 0
    assert run("cluster", "create", "--config", str(config)).exit_code == 0
    shown = json.loads(run("cluster", "show", "demo", "--json").output)
    assert (shown["groups"], shown["max_workers"], shown["terminate_orphans"]) == (["a", "b"], 9, True)
    again = run("cluster", "create", "demo")
    assert (again.exit_code, "--replace" in again.output) == (1, True)
    assert run("cluster", "create", "demo", "--replace", "--max-workers", "3").exit_code == 0
    listed = json.loads(run("cluster", "list", "--json").output)
    assert {name: policy["max_workers"] for name, policy in listed["clusters"].items()} == {"demo": 3, "from-file": 64}
    assert "max_workers: 3" in run("cluster", "show", "demo").output
    assert "/dyntrain/demo/policy" in run("cluster", "delete", "demo").output
    assert run("cluster", "show", "demo").exit_code == 1
    assert run("cluster", "delete", "demo").exit_code == 1


def test_a_group_that_the_controllers_role_may_not_act_on_is_warned_of_when_it_is_registered(run: Run, clients: Clients) -> None:
    """Else every action on it is refused, hours later, in a log."""
    clients.ec2().create_launch_template(
        LaunchTemplateName="some-template", LaunchTemplateData={"ImageId": "ami-12345678", "InstanceType": "t3.small"}
    )
    for name, tags in (("tagged", {"Key": "dyntrain:cluster", "Value": "demo"}), ("bare", {"Key": "Name", "Value": "x"})):
        owner = {"ResourceId": name, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False, **tags}
        clients.autoscaling().create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=0,
            MaxSize=1,
            AvailabilityZones=["eu-west-3a"],
            LaunchTemplate={"LaunchTemplateName": "some-template"},
            Tags=[owner],  # type: ignore[list-item]
        )
    result = run("cluster", "create", "demo", "--group", "tagged", "--group", "bare", "--group", "absent")
    assert result.exit_code == 0
    warned = [line for line in result.stderr.splitlines() if "dyntrain:cluster=demo" in line]
    assert [line.split()[5] for line in warned] == ["bare", "absent"]


REFUSED = [
    (["demo", "--min-workers", "0"], "min_workers"),
    (["demo", "--min-workers", "5", "--max-workers", "4"], "max_workers"),
    (["1demo"], "cluster"),
    ([], "cluster"),
    (["demo", "--set", "lease_secs=3"], "lease_secs"),
    (["demo", "--set", "lease_seconds=soon"], "lease_seconds"),
    (["demo", "--group", ""], "groups"),
    (["demo", "--set", "nonsense"], "FIELD=JSON"),
    (["demo", "--set", "lease_seconds=NaN"], "lease_seconds"),
    (["demo", "--config", sys.executable], "it is no text"),
]


def test_a_policy_that_is_not_valid_is_refused_by_the_name_of_its_field_and_not_written(run: Run) -> None:
    for arguments, field in REFUSED:
        result = run("cluster", "create", *arguments)
        assert (result.exit_code, field in result.output) == (1, True), result.output
        assert len(result.output.strip().splitlines()) == 1
    assert json.loads(run("cluster", "list", "--json").output) == {"clusters": {}, "invalid": {}}


def test_an_invalid_policy_that_somebody_wrote_is_listed_with_what_is_wrong(run: Run, clients: Clients) -> None:
    clients.ssm().put_parameter(Name="/dyntrain/bad/policy", Value='{"cluster": "bad", "max_workers": -1}', Type="String")
    assert "max_workers" in run("cluster", "list").output
    assert "max_workers" in run("cluster", "show", "bad").output


def test_a_cluster_with_nodes_is_not_forgotten_by_accident(run: Run, clients: Clients) -> None:
    run("cluster", "create", "demo")
    TableNodes(clients, TABLE).put(StoredNode(NodeFacts(instance=NODE, named=Named(at=AT, cluster="demo")), 0), wake=False, expires=None)
    refused = run("cluster", "delete", "demo")
    assert (refused.exit_code, NODE in refused.output) == (1, True)
    assert run("cluster", "delete", "demo", "--force").exit_code == 0


def test_events_are_the_trail_of_changes_and_actions_since_a_time(run: Run, clients: Clients) -> None:
    run("cluster", "create", "demo")
    clusters = TableClusters(clients, TABLE)
    status = {"kind": "status", "instance": NODE, "before": "", "after": "WAITING PREPARING", "detail": ""}
    clusters.record("demo", AT, [status, {"kind": "SetStatusTag", "instance": NODE, "value": "ADDED"}])
    clusters.record("demo", AT + 3600, [{"kind": "Terminate", "instance": "i-0bbbbbbbbbbbbbbb2", "value": ""}])
    assert [entry.at for entry in clusters.trail("demo", AT + 0.5)] == [AT + 3600]
    everything = [json.loads(line) for line in run("events", "--since", "2020-01-01T00:00:00Z", "--json").output.splitlines()]
    assert [(entry["at"], entry["cluster"], entry["kind"]) for entry in everything] == [
        (AT, "demo", "status"),
        (AT, "demo", "SetStatusTag"),
        (AT + 3600, "demo", "Terminate"),
    ]
    lines = run("events", "--cluster", "demo", "--since", "2020-01-01T00:00:00Z", "--instance", NODE).output.splitlines()
    assert len(lines) == 2
    assert "unknown -> WAITING PREPARING" in lines[0]
    assert run("events", "--since", "30m").output == ""


def test_events_of_an_unknown_cluster_or_time_are_one_clear_line(run: Run) -> None:
    for arguments, said in ((["--cluster", "nope"], "nope"), (["--since", "soon"], "soon")):
        result = run("events", *arguments)
        assert (result.exit_code, said in result.output, len(result.output.splitlines())) == (1, True, 1)


def test_explain_tells_each_fact_with_where_and_when_and_what_would_change_the_status(run: Run, clients: Clients) -> None:
    run("cluster", "create", "demo", "--group", "demo-workers")
    tag = "demo-aws-dl-cfn-elastic-worker"
    facts = NodeFacts(
        instance=NODE,
        named=Named(at=AT, cluster="demo"),
        tags_event=TagsEvent(version=4, at=AT + 5, tags={tag: ""}),
        tags_read=TagsRead(started=AT + 8, tags={}),
        state_read=StateRead(started=AT + 8, state="running", launched_at=AT),
        group_event=GroupEvent(at=AT + 1, group="demo-workers", phase="launching"),
        hooks={"t": Hook(at=AT + 1, group="demo-workers", hook="up", transition="launch", token="t")},
        preparation=Preparation(attempt=2, at=AT + 9, outcome="prepare_failed", reason="exit 3"),
        notices=(Notice(kind="spot", deadline=AT + 100),),
        acks={"mirror": Ack(at=AT + 10, value="PREPARE_FAILED")},
    )
    TableNodes(clients, TABLE).put(StoredNode(facts, 0), wake=False, expires=None)
    found = json.loads(run("explain", NODE, "--json").output)
    assert (found["status"], found["reason"]) == ("PREPARE_FAILED", "PREPARE_FAILED")
    assert "reboot" in found["would_change"]
    origins = {origin["fact"]: (origin["where"], origin["at"]) for origin in found["origins"]}
    assert origins["tags_event"] == ("event Tag Change on Resource, version 4", AT + 5)
    assert origins["tags_read"] == ("DescribeInstances", AT + 8)
    assert origins["preparation"] == ("the node's own report", AT + 9)
    assert {"named", "state_read", "group_event", "hooks.t", "notices", "acks.mirror"} <= set(origins)
    assert found["passed_over"] == ["tags_read: it began within 10 s after the event, which counts"]
    text = run("explain", NODE).output
    assert "what would change it" in text
    assert "attempt 2: prepare_failed  [the node's own report]" in text


def test_a_groups_facts_survive_the_table_and_are_found_by_the_clusters_tag(clients: Clients) -> None:
    groups = TableGroups(clients, TABLE)
    facts = GroupFacts(group="extra", named=Named(at=AT, cluster="demo"), failed=LaunchFailure(at=AT, message="none left"))
    groups.put(StoredGroup(facts, 0), wake=True)
    with pytest.raises(Conflict):
        groups.put(StoredGroup(facts, 0), wake=True)
    assert groups.get("extra") == StoredGroup(facts, 1)
    assert set(groups.of_cluster("demo")) == {"extra"}
    groups.put(StoredGroup(facts.join(GroupFacts(group="extra", named=Named(at=AT + 1, cluster=""))), 1), wake=False)
    assert groups.of_cluster("demo") == {}
    assert groups.get("no-such-group") is None
    assert TableNodes(clients, TABLE).of_cluster("demo") == {}


def test_sizes_tags_and_desired_capacity_of_groups(clients: Clients) -> None:
    scaling, groups = clients.autoscaling(), AutoScalingGroups(clients)
    image = clients.ec2().describe_images()["Images"][0]["ImageId"]
    clients.ec2().create_launch_template(LaunchTemplateName="sized", LaunchTemplateData={"ImageId": image, "InstanceType": "t3.small"})
    for name, tags in (("tagged", [{"Key": "dyntrain:cluster", "Value": "demo", "PropagateAtLaunch": True}]), ("plain", [])):
        scaling.create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=1,
            MaxSize=4,
            DesiredCapacity=2,
            AvailabilityZones=["eu-west-3a"],
            LaunchTemplate={"LaunchTemplateName": "sized"},
            Tags=tags,  # type: ignore[arg-type]
        )
    assert groups.tagged("dyntrain:cluster") == {"tagged": "demo"}
    assert groups.sizes(["tagged", "missing"]) == {"tagged": GroupSize(minimum=1, maximum=4, desired=2, running=2)}
    groups.set_desired("tagged", 3)
    assert groups.sizes(["tagged"])["tagged"].desired == 3
    member = groups.members(["plain"])[0]
    groups.protect([member.instance], "plain")
    assert {seen.protected for seen in groups.members(["plain"]) if seen.instance == member.instance} == {True}
    with pytest.raises((Refused, RetryLater), match="no-such-group"):  # moto answers 500, AWS refuses
        groups.set_desired("no-such-group", 1)
