"""Elastic jobs in memory: what is refused, what is made once, what ends whatever was made."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from dyntrain.controller.cli.commands.job import elastic
from dyntrain.controller.contract.errors import GiveUp, Misconfigured, Refused, RetryLater
from dyntrain.controller.jobs.submission.elastic import (
    PreparedCluster,
    end_cluster,
    make_cluster,
    prepare_cluster,
)
from dyntrain.controller.jobs.submission.elastic_request import ClusterSettings, check_elastic, elastic_phase
from dyntrain.controller.jobs.submission.ports import Hardware, Stack
from dyntrain.controller.jobs.submission.request import JobRequest
from dyntrain.controller.loops.registry import CACHE_SECONDS
from job_world import BUCKET, PACKED, SUBMISSION, World, request

WHEEL = f"s3://{BUCKET}/dyntrain.whl"


class Clouds:
    """CloudFormation and the rest of `Stacks`, with machines that take two looks to end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stacks: dict[str, Stack] = {}
        self.requests: list[Mapping[str, str]] = []
        self.machines = 3
        self.deletions = "gone"
        self.gone_at = 0.0
        self.failing: list[Exception] = []
        self.kind = Hardware(x86=True, nvidia=True)

    def hardware(self, instance_type: str) -> Hardware:
        return self.kind

    def key_pairs(self) -> Sequence[str]:
        return ["anybody"]

    def stack(self, name: str) -> Stack | None:
        return self.stacks.get(name)

    def create(self, name: str, parameters: Mapping[str, str], submission: str) -> str:
        if name in self.stacks:
            raise Refused("AlreadyExistsException", name)
        if self.failing and not isinstance(self.failing[0], RetryLater):
            raise self.failing.pop(0)
        self.stacks[name] = Stack(f"arn:{name}", "CREATE_IN_PROGRESS", submission, file_system="fs-1")
        self.requests.append(parameters)
        if self.failing:
            raise self.failing.pop(0)
        return f"arn:{name}"

    def delete(self, name: str) -> None:
        assert not self.machines, "its deletion would wait for the machines"
        if self.deletions == "gone":
            del self.stacks[name]
            self.gone_at = self.world.now
        else:
            self.stacks[name] = replace(self.stacks[name], status=self.deletions, reason="Vpc: in use")

    def end_machines(self, name: str) -> int:
        self.machines = max(0, self.machines - 2)
        return self.machines


class Desk:
    """A person with the command line, and the stage's controller."""

    def __init__(self) -> None:
        self.world = World()
        self.world.objects[BUCKET, "dyntrain.whl"] = b""
        self.clouds = Clouds(self.world)
        self.lines: list[str] = []
        self.forgotten = 0
        self.registered = False

    def prepare(self, fresh: str = SUBMISSION, **changes: Any) -> PreparedCluster:
        wanted = ClusterSettings("prod", WHEEL)
        job: JobRequest = request(**{"image": "", **changes})
        check_elastic(job, ())
        return prepare_cluster(
            self.world.ports, self.world, self.clouds, job, PACKED, wanted, fresh, registered=self.registered
        )

    def make(self, prepared: PreparedCluster) -> None:
        make_cluster(self.world.ports, self.world, self.clouds, prepared, self.lines.append)

    def stop(self) -> Stack | None:
        def forget() -> None:
            assert self.world.now >= self.clouds.gone_at + CACHE_SECONDS, (
                "the controller may write the target once more"
            )
            self.forgotten += 1

        return end_cluster(self.world.ports, self.world, self.clouds, "mnist", forget, self.lines.append)


def test_the_template_gets_base_nodes_code_and_command_of_the_job() -> None:
    desk = Desk()
    desk.make(desk.prepare(env={"COLOUR": 'red "7"'}))
    (given,) = desk.clouds.requests
    assert (given["WorkerCount"], given["Accelerator"], given["KeyName"]) == ("1", "Nvidia", "anybody")
    assert given["CodeSource"] == f"s3://{BUCKET}/mnist/code.tar.gz"
    assert given["OutputLocation"] == f"s3://{BUCKET}/mnist/artifacts"
    assert desk.world.objects[BUCKET, "mnist/code.tar.gz"] == PACKED.content
    assert json.loads(given["TrainingCommand"]) == ["python3", "train.py"]
    assert json.loads(f"{{{given['NodeFields']}}}") == {
        "environment": {"JOB_ID": "mnist", "NUM_NODES": "2", "COLOUR": 'red "7"'}
    }
    assert desk.world.record().state == "RUNNING"
    assert desk.world.resync(later=86_400.0) == {"jobs": 0, "terminated": 0}, "no hours are over for a cluster"
    assert desk.world.record().state == "RUNNING"


def test_a_cluster_has_as_many_workers_a_node_as_were_typed() -> None:
    check_elastic(request(workers_per_node=4), ["workers_per_node"])
    desk = Desk()
    desk.make(desk.prepare(workers_per_node=4))
    (given,) = desk.clouds.requests
    assert json.loads(f"{{{given['NodeFields']}}}") == {
        "workers_per_node": 4,
        "environment": {"JOB_ID": "mnist", "NUM_NODES": "2"},
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a.b"}, "no cluster name"),
        ({"nodes": 34}, "at most 33"),
        ({"command": ("{{resolve:ssm:x}}",)}, "reference"),
        ({"command": ("python3", "x" * 4096)}, "more than"),
        ({"env": {"PASSWORD": "x" * 4096}}, "more than"),
    ],
)
def test_what_a_cluster_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Misconfigured, match=message):
        check_elastic(request(**changes), ())


@pytest.mark.parametrize("option", ["spot", "placement_group", "max_hours", "wait"])
def test_an_option_of_other_jobs_is_refused_by_its_name(option: str) -> None:
    with pytest.raises(Misconfigured, match=f"^--{option.replace('_', '-')} does not go with --elastic"):
        check_elastic(request(), ("nodes", option))


def test_a_name_in_use_a_missing_wheel_and_an_arm_type_are_refused_before_anything_is_made() -> None:
    for spoil, message in (
        (lambda desk: desk.clouds.stacks.update(mnist=Stack("arn", "CREATE_COMPLETE")), "in use"),
        (lambda desk: setattr(desk, "registered", True), "in use"),
        (lambda desk: desk.world.objects.clear(), "make wheel"),
        (lambda desk: setattr(desk.clouds, "kind", Hardware(x86=False, nvidia=False)), "x86_64"),
        (lambda desk: desk.world.submit(), "in use"),
    ):
        desk = Desk()
        spoil(desk)
        before = dict(desk.world.objects), dict(desk.world.table), dict(desk.clouds.stacks)
        with pytest.raises(GiveUp, match=message):
            desk.prepare(fresh="fedcba987654")
        assert (desk.world.objects, desk.world.table, desk.clouds.stacks) == before


def test_the_disk_of_a_cluster_is_the_templates_unless_one_is_given() -> None:
    assert "VolumeSize" not in Desk().prepare().parameters
    assert Desk().prepare(disk=300).parameters["VolumeSize"] == "300"
    with pytest.raises(Misconfigured, match="at least 20 GiB"):
        check_elastic(request(image="", disk=10), ())


@pytest.mark.parametrize(("kind", "message"), [("p5.48xlarge", "compute capability 9.0"), ("p3.2xlarge", "driver")])
def test_a_cluster_of_machines_that_cannot_train_is_refused_with_what_to_take(kind: str, message: str) -> None:
    desk = Desk()
    with pytest.raises(GiveUp, match=f"{message}.*take g4dn, g5"):
        desk.prepare(instance_type=kind)
    assert (desk.world.table, desk.clouds.requests) == ({}, [])
    assert desk.prepare().warning == ""
    assert "g99.xlarge" in desk.prepare(instance_type="g99.xlarge").warning, "newer than the table"


def test_a_submit_whose_answer_is_lost_is_taken_up_by_the_same_command_and_by_no_other() -> None:
    desk = Desk()
    desk.clouds.failing = [RetryLater("the answer is lost")]
    with pytest.raises(RetryLater):
        desk.make(desk.prepare())
    assert desk.world.record().state == "LAUNCHING"
    with pytest.raises(GiveUp, match="in use"):
        desk.prepare(fresh="fedcba987654", nodes=3)
    desk.make(desk.prepare(fresh="fedcba987654"))
    assert (desk.world.record().state, len(desk.clouds.requests)) == ("RUNNING", 1)


def test_a_stack_that_aws_refuses_leaves_the_name_free() -> None:
    desk = Desk()
    desk.clouds.failing = [Refused("LimitExceeded", "too many stacks")]
    with pytest.raises(Refused):
        desk.make(desk.prepare())
    assert desk.world.table == {}
    assert set(desk.world.objects) == {(BUCKET, "dyntrain.whl")}


def test_a_submit_that_was_stopped_meanwhile_makes_no_stack() -> None:
    desk = Desk()
    prepared = desk.prepare()
    desk.world.after["put_object"] = [RetryLater("S3 is away")]
    with pytest.raises(RetryLater):
        desk.make(prepared)
    desk.stop()
    with pytest.raises(GiveUp, match="or stopped"):
        desk.make(replace(prepared, stored=replace(prepared.stored, version=1)))
    assert desk.clouds.stacks == {}


def test_stop_ends_machines_then_the_stack_then_what_the_controller_kept_and_once_more_nothing() -> None:
    desk = Desk()
    desk.make(desk.prepare())
    stack = desk.stop()
    assert stack is not None
    assert (stack.file_system, desk.clouds.stacks, desk.forgotten) == ("fs-1", {}, 1)
    assert desk.world.record().state == "STOPPED"
    assert (desk.stop(), desk.forgotten) == (None, 1), "by now the name may be another cluster's"


def test_stop_ends_what_a_submit_that_died_half_way_has_made() -> None:
    desk = Desk()
    desk.clouds.failing = [RetryLater("killed")]
    with pytest.raises(RetryLater):
        desk.make(desk.prepare())
    desk.stop()
    assert (desk.clouds.stacks, desk.world.record().state) == ({}, "STOPPED")


def test_stop_touches_no_stack_that_was_not_made_for_the_job() -> None:
    desk = Desk()
    desk.make(desk.prepare())
    desk.clouds.stacks["mnist"] = Stack("arn:other", "CREATE_COMPLETE")
    with pytest.raises(GiveUp, match="not made for this job"):
        desk.stop()
    assert (desk.clouds.machines, "mnist" in desk.clouds.stacks) == (3, True)


def test_a_stack_that_cannot_be_deleted_is_told_and_the_job_is_not_said_to_be_stopped() -> None:
    desk = Desk()
    desk.make(desk.prepare())
    desk.clouds.deletions = "DELETE_FAILED"
    with pytest.raises(GiveUp, match="Vpc: in use"):
        desk.stop()
    assert desk.world.record().state == "RUNNING"
    desk.clouds.deletions = "gone"
    desk.stop()
    assert desk.world.record().state == "STOPPED"


@pytest.mark.parametrize(
    ("status", "job", "phase"),
    [
        (None, None, "FAILED"),
        ("CREATE_IN_PROGRESS", None, "LAUNCHING"),
        ("CREATE_COMPLETE", None, "STARTING"),
        ("CREATE_IN_PROGRESS", "running", "RUNNING"),
        ("CREATE_COMPLETE", "paused", "RUNNING"),
        ("CREATE_COMPLETE", "finished", "SUCCEEDED"),
        ("CREATE_COMPLETE", "failed", "FAILED"),
        ("ROLLBACK_COMPLETE", None, "FAILED"),
        ("UPDATE_ROLLBACK_COMPLETE", "running", "RUNNING"),
        ("DELETE_IN_PROGRESS", "running", "ENDING"),
    ],
)
def test_the_phase_is_that_of_stack_and_training(status: str | None, job: str | None, phase: str) -> None:
    desk = Desk()
    desk.make(desk.prepare())
    stack = Stack("arn", status) if status is not None else None
    assert elastic_phase(desk.world.record(), stack, job)[0] == phase


def test_who_follows_a_submit_reads_why_a_node_is_not_prepared_and_why_the_training_failed() -> None:
    """And not the bare words, once for each machine that the group launches in its place, for an hour."""
    desk = Desk()
    desk.make(desk.prepare())
    record, detail = (
        desk.world.record(),
        "prepare-data failed 3 times; the last: exit code 1; its last output:\nno room",
    )
    nodes = [
        {"instance": "i-1", "status": "PREPARE_FAILED", "sentence": "it could not be prepared", "detail": detail},
        {"instance": "i-2", "status": "WAITING", "sentence": "it has not reported yet", "detail": ""},
    ]
    phase, reason = elastic_phase(record, Stack("arn", "CREATE_COMPLETE"), "failed", "KeyError: 'x'")
    seen = elastic.ElasticJobState(record, phase, reason, None, {"nodes": nodes})
    assert elastic.progress_lines(seen) == [
        "i-1: PREPARE_FAILED: prepare-data failed 3 times; the last: exit code 1; its last output: no room",
        "i-2: WAITING",
        "FAILED: the training failed: KeyError: 'x'",
    ]


def test_a_job_that_cannot_be_looked_at_hides_no_other_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for somebody who may read the table, and not every stack."""
    desk = Desk()
    desk.make(desk.prepare())
    desk.make(desk.prepare(name="other"))
    del desk.clouds.stacks["other"]
    seen = desk.clouds.stack

    def stack(name: str) -> Stack | None:
        if name == "mnist":
            raise Refused("AccessDenied", "reading the stack mnist")
        return seen(name)

    monkeypatch.setattr(desk.clouds, "stack", stack)
    monkeypatch.setattr(elastic, "_cluster_stacks", lambda launcher: desk.clouds)
    monkeypatch.setattr(elastic, "connect_to_stage", lambda stage: None)
    monkeypatch.setattr(elastic, "stage_of_command", lambda: None)
    stands = elastic.elastic_job_states(desk.world.ports, desk.world, ["mnist", "other"])  # type: ignore[arg-type]
    assert stands["other"] == ("FAILED", "its stack is gone")
    assert stands["mnist"][0] == "UNKNOWN"
    assert "AccessDenied" in stands["mnist"][1]
