"""`dyntrain cluster`, `events` and `explain`, as people type them, against moto's server; and the adapters behind
them.
"""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.adapters.autoscaling import STACK_TAG, AutoScalingGroups
from dyntrain.controller.adapters.aws import Clients
from dyntrain.controller.adapters.dynamodb import TableClusters, TableGroups, TableJobs, TableNodes
from dyntrain.controller.adapters.ec2 import Ec2Instances
from dyntrain.controller.adapters.jobs import TableJobRecords
from dyntrain.controller.contract.errors import Conflict, Refused, RetryLater
from dyntrain.controller.contract.job_history import HistoryPoint, JobHistory
from dyntrain.controller.contract.reports import JobReport
from dyntrain.controller.core.history.trail import ActionDone, Metered, StatusChanged
from dyntrain.controller.core.records.acks import Acks, Announcement
from dyntrain.controller.core.records.facts import (
    ClusterStatement,
    GroupEvent,
    Hook,
    NodeFacts,
    Notice,
    Preparation,
    SignOfLife,
    StateRead,
    TagsEvent,
    TagsRead,
)
from dyntrain.controller.core.records.groups import GroupFacts, GroupSize, LaunchFailure
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.jobs.ports import StoredJob
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.loops.ports import StoredGroup, StoredNode
from moto_account import TABLE, Run
from moto_server import any_image

NODE = "i-0aaaaaaaaaaaaaaa1"
AT = 1_700_000_000.0


def test_a_cluster_is_created_shown_listed_replaced_and_deleted(run: Run, tmp_path: Path) -> None:
    config = tmp_path / "policy.json"
    config.write_text(json.dumps({"cluster": "from-file", "min_workers": 2}))
    assert (
        run(
            "cluster",
            "create",
            "demo",
            "--group",
            "a",
            "--group",
            "b",
            "--max-workers",
            "9",
            "--set",
            "terminate_orphans=true",
        ).exit_code
        == 0
    )
    created = run("cluster", "create", "--config", str(config))
    assert (created.exit_code, "dyntrain check -- python train.py" in created.output) == (0, True)
    shown = json.loads(run("cluster", "show", "demo", "--json").output)
    assert (shown["groups"], shown["max_workers"], shown["terminate_orphans"]) == (["a", "b"], 9, True)
    again = run("cluster", "create", "demo")
    assert (again.exit_code, "--replace" in again.output) == (1, True)
    assert run("cluster", "create", "demo", "--replace", "--max-workers", "3").exit_code == 0
    listed = json.loads(run("cluster", "list", "--json").output)
    assert {name: policy["max_workers"] for name, policy in listed["clusters"].items()} == {"demo": 3, "from-file": 64}
    assert "max_workers: 3" in run("cluster", "show", "demo").output
    wide = run("cluster", "show", "demo", "--output", "wide").output
    assert re.search(r"^max_workers +3 +64$", wide, re.MULTILINE), "beside its default"
    assert "/dyntrain/demo/policy" in run("cluster", "delete", "demo").output
    assert run("cluster", "show", "demo").exit_code == 1
    assert run("cluster", "delete", "demo").exit_code == 1


def test_a_group_that_the_controllers_role_may_not_act_on_is_warned_of_when_it_is_registered(
    run: Run, clients: Clients
) -> None:
    """Else every action on it is refused, hours later, in a log."""
    clients.ec2().create_launch_template(
        LaunchTemplateName="some-template", LaunchTemplateData={"ImageId": "ami-12345678", "InstanceType": "t3.small"}
    )
    for name, tags in (
        ("tagged", {"Key": "dyntrain:cluster", "Value": "demo"}),
        ("bare", {"Key": "Name", "Value": "x"}),
    ):
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


def test_a_cluster_of_machines_that_cannot_train_is_not_registered_unless_its_mxnet_is_a_build_of_ones_own(
    run: Run, clients: Clients
) -> None:
    """The pool would start them, and the job fail at its first step. Groups count with what they have."""
    pool = ("--group", "g", "--set", 'pool={"instance_type": "p5.48xlarge"}')
    refused = run("cluster", "create", "demo", *pool)
    assert (refused.exit_code, "take g4dn, g5" in refused.output) == (1, True), refused.output
    assert json.loads(run("cluster", "list", "--json").output)["clusters"] == {}
    assert run("cluster", "create", "demo", *pool, "--own-mxnet").exit_code == 0
    clients.ec2().create_launch_template(
        LaunchTemplateName="hopper",
        LaunchTemplateData={"ImageId": any_image(clients.ec2()), "InstanceType": "p5.48xlarge"},
    )
    clients.autoscaling().create_auto_scaling_group(
        AutoScalingGroupName="hopper",
        MinSize=1,
        MaxSize=1,
        AvailabilityZones=["eu-west-3a"],
        LaunchTemplate={"LaunchTemplateName": "hopper"},
    )
    refused = run("cluster", "create", "other", "--group", "hopper")
    assert (refused.exit_code, "p5.48xlarge has H100" in refused.output) == (1, True), refused.output


REFUSED = [
    (["demo", "--min-workers", "0"], "min_workers"),
    (["demo", "--min-workers", "5", "--max-workers", "4"], "max_workers"),
    (["demo", "--max-workers", "1025"], "max_workers"),
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
    clients.ssm().put_parameter(
        Name="/dyntrain/bad/policy", Value='{"cluster": "bad", "max_workers": -1}', Type="String"
    )
    assert "max_workers" in run("cluster", "list").output
    for result in (run("cluster", "show", "bad"), run("status"), run("status", "--cluster", "bad")):
        assert "bad: its policy is invalid (max_workers: " in result.output
        assert "dyntrain cluster create bad --config FILE --replace" in result.output
    assert "max_workers" in json.loads(run("status", "--output", "json").output)["invalid"]["bad"]


def test_a_cluster_with_nodes_is_not_forgotten_by_accident(run: Run, clients: Clients) -> None:
    run("cluster", "create", "demo")
    TableNodes(clients, TABLE).put(
        StoredNode(NodeFacts(instance=NODE, named=ClusterStatement(at=AT, cluster="demo")), 0), wake=False, expires=None
    )
    refused = run("cluster", "delete", "demo")
    assert (refused.exit_code, NODE in refused.output) == (1, True)
    assert run("cluster", "delete", "demo", "--force").exit_code == 0


def test_events_are_the_trail_of_changes_and_actions_since_a_time(run: Run, clients: Clients) -> None:
    run("cluster", "create", "demo")
    clusters = TableClusters(clients, TABLE)
    status = StatusChanged(instance=NODE, before="", after="WAITING PREPARING")
    clusters.record("demo", AT, [status, ActionDone(kind="SetStatusTag", instance=NODE, value="ADDED")])
    clusters.record("demo", AT + 3600, [ActionDone(kind="Terminate", instance="i-0bbbbbbbbbbbbbbb2")])
    assert [entry.at for entry in clusters.trail("demo", AT + 0.5)] == [AT + 3600]
    everything = [
        json.loads(line) for line in run("events", "--since", "2020-01-01T00:00:00Z", "--json").output.splitlines()
    ]
    assert [(entry["at"], entry["cluster"], entry["kind"]) for entry in everything] == [
        (AT, "demo", "status"),
        (AT, "demo", "SetStatusTag"),
        (AT + 3600, "demo", "Terminate"),
    ]
    lines = run(
        "events", "--cluster", "demo", "--since", "2020-01-01T00:00:00Z", "--instance", NODE
    ).output.splitlines()
    assert len(lines) == 2
    assert "unknown -> WAITING PREPARING" in lines[0]
    quiet = run("events", "--since", "30m")
    assert (quiet.stdout, quiet.stderr.splitlines()) == ("", [quiet.stderr.strip()]), "that there is nothing is said"
    misspelt = run("cluster", "create", "x", "--set", "min_wokers=1")
    assert (misspelt.exit_code, "min_workers" in misspelt.output) == (1, True), "the fields that there are"


@pytest.mark.parametrize("command", ["status", "events", "doctor", "cost"])
def test_a_cluster_is_named_with_or_without_the_option(run: Run, command: str) -> None:
    """As `scale demo` and `logs demo` have taught it: "unexpected extra argument" says nothing of --cluster."""
    results = [run(command, *named) for named in (["nonesuch"], ["--cluster", "nonesuch"])]
    assert results[0].output == results[1].output
    assert "nonesuch" in results[0].output
    both = run(command, "demo", "--cluster", "other")
    assert (both.exit_code, "give one of them" in both.output) == (2, True)


def test_events_of_an_unknown_cluster_or_time_are_one_clear_line(run: Run) -> None:
    for arguments, message in ((["--cluster", "nope"], "nope"), (["--since", "soon"], "soon")):
        result = run("events", *arguments)
        assert (result.exit_code, message in result.output, len(result.output.splitlines())) == (1, True, 1)


def test_explain_tells_each_fact_with_where_and_when_and_what_would_change_the_status(
    run: Run, clients: Clients
) -> None:
    run("cluster", "create", "demo", "--group", "demo-workers")
    tag = "demo-aws-dl-cfn-elastic-worker"
    facts = NodeFacts(
        instance=NODE,
        named=ClusterStatement(at=AT, cluster="demo"),
        tags_event=TagsEvent(version=4, at=AT + 5, tags={tag: ""}),
        tags_read=TagsRead(started=AT + 8, tags={}),
        state_read=StateRead(started=AT + 8, state="running", launched_at=AT),
        group_event=GroupEvent(at=AT + 1, group="demo-workers", phase="launching"),
        hooks={"t": Hook(at=AT + 1, group="demo-workers", hook="up", transition="launch", token="t")},
        preparation=Preparation(attempt=2, at=AT + 9, outcome="prepare_failed", reason="exit 3"),
        heard=SignOfLife(at=AT + 4, doing="prepare-data runs"),
        notices=(Notice(kind="spot", deadline=AT + 100),),
        acks=Acks(mirror=Announcement(at=AT + 10, value="PREPARE_FAILED")),
    )
    TableNodes(clients, TABLE).put(StoredNode(facts, 0), wake=False, expires=None)
    answer = json.loads(run("explain", NODE, "--json").output)
    assert (answer["status"], answer["reason"]) == ("PREPARE_FAILED", "PREPARE_FAILED")
    assert "reboot" in answer["would_change"]
    origins = {origin["fact"]: (origin["where"], origin["at"]) for origin in answer["origins"]}
    assert origins["tags_event"] == ("event Tag Change on Resource, version 4", AT + 5)
    assert origins["tags_read"] == ("DescribeInstances", AT + 8)
    assert origins["heard"] == ("the node's own report", AT + 4)
    assert origins["preparation"] == ("the node's own report", AT + 9)
    assert {"named", "state_read", "group_event", "hooks.t", "notices", "acks.mirror"} <= set(origins)
    assert answer["passed_over"] == ["tags_read: it began within 10 s after the event, which counts"]
    assert '"attempt": 2' in run("explain", NODE, "--output", "wide").output
    text = run("explain", NODE).output
    assert "what would change it" in text
    assert "attempt 2: prepare_failed, exit 3  [the node's own report]" in text


def test_a_groups_facts_survive_the_table_and_are_found_by_the_clusters_tag(clients: Clients) -> None:
    groups = TableGroups(clients, TABLE)
    facts = GroupFacts(
        group="extra", named=ClusterStatement(at=AT, cluster="demo"), failed=LaunchFailure(at=AT, message="none left")
    )
    groups.put(StoredGroup(facts, 0), wake=True)
    with pytest.raises(Conflict):
        groups.put(StoredGroup(facts, 0), wake=True)
    assert groups.get("extra") == StoredGroup(facts, 1)
    assert set(groups.of_cluster("demo")) == {"extra"}
    groups.put(
        StoredGroup(facts.join(GroupFacts(group="extra", named=ClusterStatement(at=AT + 1, cluster=""))), 1), wake=False
    )
    assert groups.of_cluster("demo") == {}
    assert groups.get("no-such-group") is None
    assert TableNodes(clients, TABLE).of_cluster("demo") == {}


def test_logs_of_a_machine_that_nobody_knows_any_more_are_shown_and_none_is_said(run: Run, clients: Clients) -> None:
    nothing = run("logs", "demo")
    assert (nothing.exit_code, "/dyntrain/demo of this region" in nothing.output) == (1, True)
    stream, logs = f"demo/job-1/{NODE}/worker", clients.logs()
    logs.create_log_group(logGroupName="/dyntrain/demo")
    logs.create_log_stream(logGroupName="/dyntrain/demo", logStreamName=stream)
    logs.put_log_events(
        logGroupName="/dyntrain/demo",
        logStreamName=stream,
        logEvents=[{"timestamp": int(time.time() * 1000), "message": "loss 0.5"}],
    )
    assert run("logs", "demo", "--since", "10m").output == f"{NODE} worker  loss 0.5\n"


def test_sizes_tags_and_desired_capacity_of_groups(clients: Clients) -> None:
    scaling, groups = clients.autoscaling(), AutoScalingGroups(clients)
    image = any_image(clients.ec2())
    clients.ec2().create_launch_template(
        LaunchTemplateName="sized", LaunchTemplateData={"ImageId": image, "InstanceType": "t3.small"}
    )
    for name, tags in (
        ("tagged", [{"Key": "dyntrain:cluster", "Value": "demo", "PropagateAtLaunch": True}]),
        ("plain", [{"Key": "dyntrain:base", "Value": "true", "PropagateAtLaunch": True}]),
    ):
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
    assert groups.of_own_stacks("dyntrain:cluster") == {}
    for stack, own in (("other", {}), ("demo", {"tagged": "demo"})):
        mark = {"Key": STACK_TAG, "Value": stack, "ResourceId": "tagged", "ResourceType": "auto-scaling-group"}
        scaling.create_or_update_tags(Tags=[mark])  # type: ignore[list-item]
        assert groups.of_own_stacks("dyntrain:cluster") == own
    assert groups.sizes(["tagged", "missing"]) == {"tagged": GroupSize(minimum=1, maximum=4, desired=2, running=2)}
    assert groups.sizes(["plain"])["plain"].base
    groups.set_desired("tagged", 3)
    assert groups.sizes(["tagged"])["tagged"].desired == 3
    member = groups.members(["plain"])[0]
    groups.protect([member.instance], "plain")
    assert {seen.protected for seen in groups.members(["plain"]) if seen.instance == member.instance} == {True}
    with pytest.raises((Refused, RetryLater), match="no-such-group"):  # moto answers 500, AWS refuses
        groups.set_desired("no-such-group", 1)


def test_cost_tells_what_ran_as_a_table_and_as_json_and_answers_a_name_that_there_is_not(
    run: Run, clients: Clients
) -> None:
    now = time.time()
    began = {"state": "on", "type": "c5.large", "market": "spot", "since": now - 7200}
    ran = [Metered.model_validate({**began, "instance": f"i-{role}", "role": role}) for role in ("elastic", "master")]
    ended = ran[0].model_copy(update={"state": "off", "since": now - 3600})
    TableClusters(clients, TABLE).record("demo", now - 3600, [*ran, ended])
    shown = run("cost", "demo").stdout.splitlines()
    assert shown[0].startswith("cluster demo since ")
    assert shown[1].split()[:3] == ["ROLE", "TYPE", "OPTION"]
    assert [line.split()[:6] for line in shown[2:4]] == [
        ["master", "c5.large", "spot", "1", "1", "2.00"],
        ["elastic", "c5.large", "spot", "1", "0", "1.00"],
    ]
    assert shown[4].startswith("3.00 instance-hours")
    (usage,) = json.loads(run("cost", "demo", "--since", "30m", "--json").stdout)
    assert [(line["role"], round(line["hours"], 1)) for line in usage["lines"]] == [("master", 0.5)]
    assert "i-master" in run("cost", "demo", "--output", "wide").stdout
    fields: Any = {"name": "demo", "submission": "5ub", "digest": "d", "bucket": "no-such-bucket", "nodes": 1}
    at: Any = {"instance_type": "c5.large", "max_hours": 1.0, "since": now, "changed": now, "state": "RUNNING"}
    TableJobRecords(clients, TABLE).put(StoredJob(JobRecord(**fields, **at, elastic=True), 0), over=False)
    every = json.loads(run("cost", "--json").stdout)
    assert [(one["kind"], one["name"]) for one in every] == [("cluster", "demo")], (
        "an elastic job is its cluster, also when that is deleted"
    )
    for arguments, message in ((["nope"], "neither a cluster nor a job 'nope'"), (["--since", "soon"], "soon")):
        result = run("cost", *arguments)
        assert (result.exit_code, message in result.output, len(result.output.splitlines())) == (1, True, 1)


def test_what_ec2_says_of_how_an_instance_is_paid_for_is_read(clients: Clients) -> None:
    ec2 = clients.ec2()
    request: Any = {"ImageId": "ami-12345678", "InstanceType": "c5.large", "MinCount": 1, "MaxCount": 1}
    instances = [
        ec2.run_instances(**request, **more)["Instances"][0]["InstanceId"]
        for more in ({}, {"InstanceMarketOptions": {"MarketType": "spot"}})
    ]
    seen = {one.instance: one for one in Ec2Instances(clients).by_id(instances)}
    assert [(seen[name].type, seen[name].market) for name in instances] == [
        ("c5.large", "on-demand"),
        ("c5.large", "spot"),
    ]


def test_a_jobs_reports_are_enough_for_its_curves_in_tensorboard(clients: Clients, run: Run, tmp_path: Path) -> None:
    """From a laptop, which has no volume."""
    assert run("cluster", "create", "demo", "--group", "a").exit_code == 0
    points = [HistoryPoint(at=10.0 * n, epoch=n, step=5 * n, workers=2, samples_per_second=9.0) for n in (1, 2)]
    report = JobReport(
        cluster="demo", job="job-9", state="running", started_at=1.0, sequence=1, generation=1, revision=1, members=()
    ).model_copy(update={"history": JobHistory(points=tuple(points))})
    TableJobs(clients, TABLE).put("demo", JobFacts(report=report, heard_at=25.0), 0, wake=False)
    done = run("tensorboard", "demo", "--logdir", str(tmp_path), "--no-serve")
    assert (done.exit_code, done.output) == (0, f"4 entries of job-9 in {tmp_path}\n")
    assert len(list((tmp_path / "job-9").iterdir())) == 1
    unknown = run("tensorboard", "nothing", "--logdir", str(tmp_path), "--no-serve")
    assert (unknown.exit_code, "no job 'nothing' has reported" in unknown.output) == (1, True)
