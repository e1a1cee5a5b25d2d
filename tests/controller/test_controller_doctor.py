"""What `dyntrain doctor` says: a verdict and what to do, on a healthy installation and on each way to break it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.config import Config
from botocore.session import Session
from click.testing import CliRunner
from dyntrain.controller.cli.doctor.checks import diagnosis
from dyntrain.controller.cli.doctor.claims import claims
from dyntrain.controller.cli.doctor.observations import (
    ClusterSeen,
    GroupSeen,
    ImageSeen,
    Readings,
    StackSeen,
    TemplateSeen,
    Unread,
)
from dyntrain.controller.cli.doctor.reading import Reader
from dyntrain.controller.cli.main import main
from dyntrain.controller.contract.messages import ClusterPolicy, NodeConfig
from dyntrain.controller.contract.pool_policy import PoolPolicy
from dyntrain.controller.contract.stage import stage_parameter
from moto_server import moto_server

SLOW = Config(read_timeout=100)  # moto loads a service with its first call, which a busy machine takes its time for
RESOURCES = Path(__file__).parents[2] / ".chalice" / "resources.yaml"
BOTH = frozenset({"autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING"})
STAGE = {
    stage_parameter("prod", "table"): "dyntrain-prod-FactsTable-1A",
    stage_parameter("prod", "tables"): "dyntrain-prod-FactsTable-*",
    stage_parameter("prod", "suffix"): "-worker",
    stage_parameter("prod", "identity"): "region",
}
POLICY = ClusterPolicy(cluster="demo", stage="prod", groups=("demo-workers",))
POOL = PoolPolicy(instance_type="p5en.48xlarge", max=4, group="demo-workers")
NODE = NodeConfig(cluster="demo", stage="prod", elastic_suffix="-worker", mount="/data", training_cmd=("true",))
GROUP = GroupSeen(0, 4, 2, 2, {"dyntrain:cluster": "demo", "demo-worker": ""}, BOTH)
CLUSTER = ClusterSeen(
    parameters={
        "policy": POLICY.model_dump_json(),
        "node": NODE.model_dump_json(),
        "target": "{}",
        "coordinator": "{}",
        "token": "x",
    },
    stack=StackSeen("CREATE_COMPLETE"),
    groups={"demo-workers": GROUP},
    template=TemplateSeen({"demo-worker": ""}, "ami-1", {"/dev/sda1": 50}),
    image=ImageSeen("available", {"/dev/sda1": 30, "/dev/sdb": 4}),
    wheel=True,
    denied=(),
)
HEALTHY = Readings(
    region="eu-central-1",
    caller="arn:aws:iam::111122223333:user/operator",
    stages=STAGE,
    wanted_stage=None,
    stack=StackSeen("UPDATE_COMPLETE"),
    table="ACTIVE",
    alarms={},
    denied=(),
    clusters={"demo": CLUSTER},
)


def wrong(seen: Readings) -> dict[str, str]:
    return {line.what: line.says for line in diagnosis(seen) if line.verdict == "wrong"}


def with_cluster(**changed: Any) -> Readings:
    return replace(HEALTHY, clusters={"demo": replace(CLUSTER, **changed)})


def with_group(**changed: Any) -> Readings:
    return with_cluster(groups={"demo-workers": replace(GROUP, **changed)})


def with_stack(**parameters: str) -> Readings:
    return with_cluster(stack=StackSeen("CREATE_COMPLETE", {"Accelerator": "Nvidia", "MXNet": "", **parameters}))


def with_parameter(leaf: str, text: str | None) -> Readings:
    assert isinstance(CLUSTER.parameters, dict)
    kept = {name: value for name, value in CLUSTER.parameters.items() if name != leaf}
    return with_cluster(parameters=kept if text is None else {**kept, leaf: text})


def test_a_healthy_installation_has_no_complaint() -> None:
    assert {line.verdict for line in diagnosis(HEALTHY)} == {"ok"}
    assert len(diagnosis(HEALTHY)) > 15


SECOND = {stage_parameter("dev", "table"): "t", stage_parameter("dev", "suffix"): "-dev-worker"}


@pytest.mark.parametrize(
    ("seen", "what", "words"),
    [
        (replace(HEALTHY, caller=Unread("no AWS credentials were found")), "credentials", "no AWS credentials"),
        (replace(HEALTHY, stages={}), "stage", "run make deploy"),
        (replace(HEALTHY, stages={**STAGE, **SECOND}, wanted_stage="prod"), "stage", "one tag can mean two clusters"),
        (replace(HEALTHY, stages={**STAGE, **SECOND}), "stage", "--stage"),
        (
            replace(HEALTHY, stages={name: value for name, value in STAGE.items() if not name.endswith("tables")}),
            "stage",
            "earlier release",
        ),
        (replace(HEALTHY, stack=None), "controller's stack", "make deploy"),
        (replace(HEALTHY, stack=StackSeen("UPDATE_ROLLBACK_FAILED")), "controller's stack", "see its events"),
        (
            replace(HEALTHY, stack=StackSeen("CREATE_FAILED", failed={"Converge": "no role"})),
            "controller's stack",
            "Converge failed: no role",
        ),
        (replace(HEALTHY, table=None), "table", "does not exist"),
        (replace(HEALTHY, alarms={"dyntrain-prod-X": "A thing is so."}), "alarms", "A thing is so."),
        (replace(HEALTHY, denied=("ssm:GetParameter on *",)), "permissions", "may not ssm:GetParameter"),
        (with_parameter("policy", None), "demo: policy", "cluster create"),
        (with_parameter("policy", '{"cluster": "demo", "min_workers": 0}'), "demo: policy", "min_workers"),
        (with_parameter("node", None), "demo: node parameter", "no node starts"),
        (
            with_parameter("node", NODE.model_copy(update={"elastic_suffix": "-other"}).model_dump_json()),
            "demo: node parameter",
            "end in -other",
        ),
        (
            with_parameter("node", NODE.model_copy(update={"identity_keys": "AAAA"}).model_dump_json()),
            "demo: identity keys",
            "IdentityKeys",
        ),
        (with_parameter("target", None), "demo: target", "no base node is prepared"),
        (with_parameter("token", None), "demo: coordinator", "no coordinator has started"),
        (with_cluster(groups={}), "demo: group demo-workers", "does not exist"),
        (with_group(tags={"demo-worker": ""}), "demo: group demo-workers", "set the tag"),
        (with_group(tags={"dyntrain:cluster": "demo"}), "demo: group demo-workers", "none of them joins"),
        (with_group(hooks=frozenset([*BOTH][:1])), "demo: group demo-workers", "hook"),
        (with_group(in_service=1), "demo: group demo-workers", "1 of 2 are in service"),
        (
            with_group(tags={"dyntrain:cluster": "demo", "dyntrain:base": "true"}, abandons=True),
            "demo: group demo-workers",
            "its launch hook ends a base node that does not report",
        ),
        (
            with_parameter("policy", '{"cluster": "demo", "min_workers": 20, "max_workers": 16}'),
            "demo: policy",
            "invalid (max_workers: Value error, max_workers must not be below min_workers (20)), so the controller",
        ),
        (with_group(handed_on=frozenset({"demo-worker", "Cost Center"})), "demo: group demo-workers", "'Cost Center'"),
        (
            with_cluster(template=TemplateSeen({"demo-worker": "", "team/owner": "ml"}, "ami-1")),
            "demo: launch template",
            "no instance can be launched with the tag 'team/owner'",
        ),
        (with_cluster(template=TemplateSeen({}, "ami-1")), "demo: launch template", "do not carry the tag demo-worker"),
        (
            with_cluster(
                stack=StackSeen("UPDATE_COMPLETE", resources={"WorkerGroup": "demo-workers", "NodeRole": "x"})
            ),
            "demo: role of workers",
            "update the cluster's stack",
        ),
        (with_stack(InstanceType="p5.48xlarge"), "demo: GPUs", "take g4dn, g5"),
        (with_stack(InstanceType="g6.xlarge", MXNet="mxnet-cu102==1.9.1"), "demo: GPUs", "mxnet-cu102 has code for"),
        (with_stack(InstanceType="p3.2xlarge"), "demo: GPUs", "driver"),
        (with_stack(Accelerator="None", InstanceType="g5.xlarge"), "demo: GPUs", "Accelerator=Nvidia"),
        (with_group(types=frozenset({"p5.48xlarge", "g5.xlarge"})), "demo: GPUs", "compute capability 9.0"),
        (
            with_parameter("policy", POLICY.model_copy(update={"pool": POOL}).model_dump_json()),
            "demo: GPUs",
            "p5en.48xlarge has H200 GPUs",
        ),
        (with_cluster(image=None), "demo: image", "no instance can be launched"),
        (with_cluster(image=ImageSeen("available", {"/dev/sda1": 75})), "demo: image", "needs 75 GiB on /dev/sda1"),
        (with_cluster(wheel=False), "demo: wheel", "copy it there"),
        (
            with_cluster(denied=("events:PutEvents on x",)),
            "demo: permissions of nodes",
            "the nodes' role may not events:PutEvents",
        ),
    ],
)
def test_what_is_broken_is_one_line_that_says_what_to_do(seen: Readings, what: str, words: str) -> None:
    problems = wrong(seen)
    assert set(problems) == {what}
    assert words in problems[what]


def test_gpus_that_train_are_fine_and_newer_ones_than_the_table_are_no_verdict() -> None:
    verdicts = {
        kind: [(line.verdict, line.says) for line in diagnosis(seen) if line.what == "demo: GPUs"]
        for kind, seen in {
            "g5": with_stack(InstanceType="g5.xlarge"),
            "new": with_stack(InstanceType="g99.xlarge"),
            "none": with_stack(Accelerator="None", InstanceType="c6i.xlarge"),
            "by hand": with_group(types=frozenset({"g4dn.xlarge"})),
        }.items()
    }
    assert verdicts["g5"] == [("ok", "A10G, compute capability 8.6")]
    assert [verdict for verdict, _ in verdicts["new"]] == ["unknown"]
    assert verdicts["none"] == []
    assert verdicts["by hand"] == [("ok", "g4dn.xlarge")]


def said_of_identities(seen: Readings) -> list[tuple[str, str]]:
    return [(line.verdict, line.says) for line in diagnosis(seen) if line.what.endswith("identity keys")]


def test_unverified_identities_are_told_of_and_are_wrong_only_where_keys_cannot_be_read() -> None:
    """Where AWS's key is not known all goes as it did, and people hear of it."""
    proven = ("ok", "nodes prove which instance they are")
    assert said_of_identities(HEALTHY) == [proven, proven]
    elsewhere = said_of_identities(replace(HEALTHY, region="eusc-de-east-1"))
    assert [verdict for verdict, _ in elsewhere] == ["unknown", "unknown"]
    assert all(says.startswith("unverified, no key of AWS is known for eusc-de-east-1: ") for _, says in elsewhere)
    for word, verdict in (("unverified", "ok"), ("keys", "ok"), ("", "unknown")):
        stages = {**STAGE, stage_parameter("prod", "identity"): word}
        (of_controller, of_nodes) = said_of_identities(replace(HEALTHY, stages=stages, region="eusc-de-east-1"))
        assert of_controller[0] == verdict
        assert of_controller[1].startswith("unverified, it was set so") == (word == "unverified")
        assert of_nodes[0] == "unknown"
    chosen = NODE.model_copy(update={"identity_keys": "unverified"}).model_dump_json()
    assert said_of_identities(with_parameter("node", chosen))[1][0] == "ok"


def test_a_base_group_needs_no_elastic_tag() -> None:
    assert wrong(with_group(tags={"dyntrain:cluster": "demo", "dyntrain:base": "true"})) == {}


def test_what_one_may_not_look_at_is_no_verdict() -> None:
    unread = Unread("AccessDenied: not for you")
    cluster = ClusterSeen(unread, unread, unread, unread, unread, unread, unread)
    seen = replace(
        HEALTHY, stack=unread, table=unread, alarms=unread, denied=unread, clusters={"demo": cluster}, stages=unread
    )
    lines = diagnosis(seen)
    assert {line.verdict for line in lines[2:]} == {"unknown"}
    assert all("AccessDenied: not for you" in line.says for line in lines[2:])


# ---- the command


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    with moto_server("ssm", "sts") as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        yield endpoint


def test_an_account_without_a_controller_is_told_so_with_exit_code_1(aws: str) -> None:
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 1, done.output
    assert re.search(r"^WRONG +stage ", done.output, re.MULTILINE)
    assert "run make deploy" in done.output


def test_the_stack_that_the_controllers_template_makes_is_found_by_what_it_says_of_itself(aws: str) -> None:
    """Its table and its parameters; functions would want a package."""
    whole = yaml.safe_load(RESOURCES.read_text())
    parts = {name: one for name, one in whole["Resources"].items() if name.startswith(("Facts", "Stage"))}
    session = Session()
    session.create_client("cloudformation").create_stack(
        StackName="dyntrain-prod",
        TemplateBody=json.dumps({"Parameters": whole["Parameters"], "Resources": parts}),
        Parameters=[
            {"ParameterKey": "Stage", "ParameterValue": "prod"},
            {"ParameterKey": "ElasticSuffix", "ParameterValue": "-worker"},
        ],
    )
    raise_alarm("dyntrain-prod-2-Dead")  # of another stack, whose name begins alike
    done = CliRunner().invoke(main, ["doctor", "--json"])
    verdicts = {line["what"]: line["verdict"] for line in map(json.loads, done.output.splitlines())}
    assert {verdicts.pop(what) for what in ("stage", "controller's stack", "table", "alarms")} == {"ok"}, done.output
    assert (done.exit_code, "wrong" in verdicts.values()) == (0, False), done.output


def raise_alarm(name: str) -> None:
    cloudwatch = Session().create_client("cloudwatch", config=SLOW)
    watched = {"Namespace": "x", "MetricName": "y", "Statistic": "Sum", "Period": 60, "Threshold": 1}
    rule = {"EvaluationPeriods": 1, "ComparisonOperator": "GreaterThanThreshold", "AlarmDescription": "so"}
    cloudwatch.put_metric_alarm(AlarmName=name, **watched, **rule)
    cloudwatch.set_alarm_state(AlarmName=name, StateValue="ALARM", StateReason="test")


def test_the_alarms_that_are_raised_are_found_by_their_names_however_many_there_are(aws: str) -> None:
    raise_alarm("last")
    raise_alarm("others")
    names = [*(f"calm-{number}" for number in range(150)), "last"]
    assert Reader(None)._read_alarms(names) == {"last": "so"}


def test_a_group_of_any_name_without_the_tag_is_told_and_the_account_is_listed_once(aws: str) -> None:
    session = Session()
    session.create_client("ec2", config=SLOW).create_launch_template(
        LaunchTemplateName="fleet", LaunchTemplateData={"ImageId": "ami-12345678", "InstanceType": "t3.small"}
    )
    session.create_client("autoscaling", config=SLOW).create_auto_scaling_group(
        AutoScalingGroupName="fleet",
        MinSize=0,
        MaxSize=1,
        AvailabilityZones=["us-east-1a"],
        LaunchTemplate={"LaunchTemplateName": "fleet"},
    )
    for name, value in STAGE.items():
        session.create_client("ssm").put_parameter(Name=name, Value=value, Type="String")
    for name in ("demo", "other"):
        policy = ClusterPolicy(cluster=name, groups=("fleet",)).model_dump_json()
        session.create_client("ssm").put_parameter(Name=f"/dyntrain/{name}/policy", Value=policy, Type="String")
    seen = Listening(None)
    lines = {line.what: line.says for line in diagnosis(seen.read(None))}
    assert "its tag dyntrain:cluster is not demo" in lines["demo: group fleet"]
    assert "its tag dyntrain:cluster is not other" in lines["other: group fleet"]
    assert seen.operations.count("DescribeAutoScalingGroups") == 1


class Listening(Reader):
    """Notes which operations it asks for."""

    def __init__(self, wanted: str | None) -> None:
        super().__init__(wanted)
        self.operations: list[str] = []

    def _aws_client(self, service: str) -> Any:
        client = super()._aws_client(service)
        client.meta.events.register("before-call", lambda model, **_more: self.operations.append(model.name))
        return client


def test_pages_without_end_are_not_read_for_ever(aws: str) -> None:
    moments = iter([0.0, 0.0, *[1000.0] * 50])
    seen = Reader(None, clock=lambda: next(moments)).read(None)
    assert isinstance(seen.stages, Unread)
    assert "not read within" in seen.stages.why, "it was begun in time"


def test_an_aws_that_does_not_answer_is_a_sentence_and_not_a_wait(monkeypatch: pytest.MonkeyPatch, aws: str) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    done = CliRunner().invoke(main, ["doctor", "--json"])
    assert done.exit_code == 1, done.output
    lines = [json.loads(line) for line in done.output.splitlines()]
    assert [line["what"] for line in lines] == ["region", "credentials"]
    assert "Could not connect" in lines[1]["says"]


def test_once_the_time_is_over_nothing_more_is_asked() -> None:
    moments = iter([0.0, *[1000.0] * 50])
    seen = Reader(None, clock=lambda: next(moments)).read(None)
    assert isinstance(seen.caller, Unread)
    assert isinstance(seen.clusters, Unread)
    assert "not read within" in seen.clusters.why


def test_offline_it_tells_what_is_believed_and_who_vouches_for_it() -> None:
    done = CliRunner().invoke(main, ["doctor", "--offline", "--json"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.output.splitlines()]
    assert len(rows) == len(list(claims()))
    believed = [row for row in rows if row["witness"].startswith("none, from the documentation at https://docs.aws")]
    assert 0 < len(believed) < len(rows)
