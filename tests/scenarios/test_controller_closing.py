"""The end of a cluster: what becomes of its base nodes after the job, without one, and after its hours."""

from __future__ import annotations

import pytest
from dyntrain.controller.cli.answers.query import snapshot, summary
from dyntrain.controller.cli.text.status import headline
from dyntrain.controller.contract.errors import Refused, RetryLater
from dyntrain.controller.contract.messages import ClusterPolicy
from fakes import ELASTIC, Member, World, running_cluster
from pydantic import ValidationError

HOUR = 3600.0
GROUP = "demo-workers"


def trained(elastic: int = 1, **policy: object) -> tuple[World, str, list[str]]:
    """A job that runs; the master and another base node are members of a group, as the template makes them."""
    world, master, workers = running_cluster(elastic, **policy)
    second = world.launch(1001, base=True)
    for base in (master, second):
        world.membership[base] = Member(GROUP, "in_service")
    world.resync()
    world.calls.clear()
    return world, master, [second, *workers]


def over(world: World, master: str, state: str = "finished") -> None:
    world.hear(world.job_event(state=state, revision=world.target().revision, instance_id=master))


def later(world: World, seconds: float) -> None:
    world.wait(seconds)
    world.resync()


def ends(world: World) -> set[tuple[str, ...]]:
    wanted = ("groups.terminate", "instances.terminate", "instances.stop")
    return {call for call in world.calls if call[0] in wanted}


def replacing(world: World) -> list[str]:
    """What became of the groups' way to replace members that do not run, in order."""
    return [
        call[0].split(".")[1].removesuffix("_replacement") for call in world.calls if call[0].endswith("_replacement")
    ]


def headlines(world: World) -> list[str]:
    return headline(summary(snapshot(world.ports, world.registry, "demo", ELASTIC)))


def stops(world: World, *instances: str) -> None:
    for instance in instances:
        world.hear(world.state_event(instance, "stopping"), world.state_event(instance, "stopped"))


def starts(world: World, *instances: str) -> None:
    """Somebody starts them, and they come up."""
    world.wait(60)
    world.ports.instances.start(instances)
    for instance in instances:
        world.hear(world.state_event(instance, "pending"), world.state_event(instance, "running"))


def stopped_after_job(**policy: object) -> tuple[World, str, str]:
    world, master, (second,) = trained(0, after_job="stop", **policy)
    over(world, master)
    later(world, 601)
    stops(world, master, second)
    world.calls.clear()
    return world, master, second


def test_what_the_policy_does_not_say_is_not_done() -> None:
    world, master, _ = trained(0)
    over(world, master)
    later(world, 100 * HOUR)
    assert ends(world) == set()
    assert world.standing(master)[0] != "REMOVED"


def test_base_nodes_are_ended_ten_minutes_after_the_job_with_their_places_and_once() -> None:
    world, master, (second, elastic) = trained(after_job="terminate")
    over(world, master)
    later(world, 590)
    assert {call[1] for call in ends(world)} == {elastic}, "there is time to start another job"
    world.calls.clear()
    world.limits[GROUP] = (0, 4, 2)
    later(world, 20)
    assert {call[1:3] for call in ends(world)} == {(master, GROUP), (second, GROUP)}
    assert replacing(world) == [], "nobody's place is left to be filled"
    assert world.limits[GROUP] == (0, 4, 0), "else the group would launch others in their places"
    assert world.standing(second) == ("REMOVED", "TERMINATE_ISSUED")
    world.membership[second] = Member(GROUP, "terminating", "terminate")
    world.calls.clear()
    world.hear(world.hook_event(second, "terminate", "down"))
    assert [call[0] for call in world.calls if "complete" in call[0]] == ["groups.complete"], "its hook does not wait"
    later(world, 60)
    assert (ends(world), world.metrics) == (set(), [])
    assert world.status(second) == "REMOVED"


def test_a_job_that_is_started_in_time_keeps_them() -> None:
    world, master, _ = trained(0, after_job="terminate")
    over(world, master)
    later(world, 300)
    world.hear(world.job_event(master, job="job-2", started_at=world.now, revision=world.target().revision))
    later(world, 20)
    world.hear(world.job_event(master, job="job-2", started_at=world.now - 20, revision=world.target().revision))
    later(world, 400)
    assert ends(world) == set()


@pytest.mark.parametrize("told_by", ["events", "resync"])
def test_what_was_stopped_stays_so_for_its_reason_and_alarms_nobody(told_by: str) -> None:
    """For days, by whatever its end becomes known: as it was, each of them was a base node that is missed."""
    world, master, (second,) = trained(0, after_job="stop")
    over(world, master)
    later(world, 601)
    calls = [call for call in world.calls if call[0] in ("groups.suspend_replacement", "instances.stop")]
    assert calls == [("groups.suspend_replacement", GROUP), ("instances.stop", master, second)], "in this order"
    if told_by == "events":
        stops(world, master, second)
    world.calls.clear()
    for _ in range(3):
        later(world, 10 * HOUR)
    assert {world.standing(base) for base in (master, second)} == {("REMOVED", "JOB_OVER")}
    assert (ends(world), world.metrics) == (set(), [])
    assert world.target().members == ()
    assert headlines(world)[-1] == f"  to go on: aws ec2 start-instances --instance-ids {master} {second}"


def test_what_is_started_again_after_the_job_is_not_ended_by_it() -> None:
    """Else nobody could use the cluster a second time: its coordinator comes back, and says again that all is over."""
    world, master, second = stopped_after_job()
    starts(world, master, second)
    world.hear(world.report(master, attempt=2), world.report(second, attempt=2))
    over(world, master)
    later(world, HOUR)
    assert ends(world) == set()
    assert {world.standing(base)[0] for base in (master, second)} == {"ADD_QUEUED"}
    assert "closed" not in " ".join(headlines(world))


def test_a_group_replaces_its_members_again_once_all_that_were_stopped_run() -> None:
    """One that is still stopped would be replaced at once."""
    world, master, second = stopped_after_job()
    starts(world, master)
    later(world, 61)
    assert replacing(world) == []
    assert world.standing(second) == ("REMOVED", "JOB_OVER")
    starts(world, second)
    later(world, 61)
    later(world, 61)
    assert replacing(world) == ["resume"], "once"


def test_a_job_that_starts_again_trains_and_grows_as_ever() -> None:
    world, master, second = stopped_after_job()
    starts(world, master, second)
    world.hear(world.report(master, attempt=2), world.report(second, attempt=2))
    assert set(world.target().members) == {master, second}
    again = {"job": "job-2", "started_at": world.now}
    world.hear(world.job_event(master, second, revision=world.target().revision, **again))
    worker = world.launch(5)
    world.hear(world.tag(worker), world.report(worker))
    world.hear(world.job_event(master, second, worker, revision=world.target().revision, **again))
    later(world, 5)
    assert {world.standing(one) for one in (master, second, worker)} == {("ADDED", "TRAINING")}
    assert world.target().coordinator == master


def test_nothing_is_stopped_whose_group_would_replace_it() -> None:
    world, master, (second,) = trained(0, after_job="stop")
    over(world, master)
    world.wait(601)
    world.failing["groups.suspend_replacement"] = [Refused("AccessDenied", "no"), RetryLater("busy")]
    world.resync()
    assert ends(world) == set()
    assert world.standing(master) == ("REMOVED", "GROUP_REFUSES")
    world.wait(61)
    with pytest.raises(RetryLater):
        world.resync()
    assert ends(world) == set()
    later(world, 61)
    assert ends(world) == {("instances.stop", master, second)}
    assert world.standing(master) == ("REMOVED", "JOB_OVER"), "what was refused before is no matter any more"


def test_a_cluster_goes_on_with_a_node_that_could_not_be_stopped() -> None:
    """As a Spot instance of a one-time request: its group replaces members again once the other one runs too."""
    world, master, (second,) = trained(0, after_job="stop")
    over(world, master)
    world.refusing[master] = "UnsupportedOperation: You can't stop the Spot Instance"
    later(world, 601)
    stops(world, second)
    assert world.standing(master) == ("REMOVED", "GROUP_REFUSES")
    again = {"job": "job-2", "started_at": world.now}
    world.hear(world.job_event(master, revision=world.target().revision, **again))
    worker = world.launch(5)
    world.hear(world.tag(worker), world.report(worker))
    world.hear(world.job_event(master, worker, revision=world.target().revision, **again))
    assert {world.standing(one) for one in (master, worker)} == {("ADDED", "TRAINING")}
    assert replacing(world) == ["suspend"]
    starts(world, second)
    assert replacing(world) == ["suspend", "resume"]


def test_a_stop_that_shows_no_effect_is_asked_for_again() -> None:
    world, master, (second,) = trained(0, after_job="stop")
    over(world, master)
    later(world, 601)
    world.machines[second].state = "running"
    world.calls.clear()
    later(world, 30)
    assert ends(world) == set()
    later(world, 31)
    assert ends(world) == {("instances.stop", second)}


def test_failed_launches_are_not_made_good_in_a_closed_cluster() -> None:
    world, master, (second,) = trained(0, after_job="stop", launch_cooldown_seconds=60)
    world.limits[GROUP] = (0, 4, 4)
    failed = {"AutoScalingGroupName": GROUP, "EC2InstanceId": ""}
    world.hear(world.event("aws.autoscaling", "EC2 Instance Launch Unsuccessful", failed))
    assert world.limits[GROUP][2] == 2
    over(world, master)
    for _ in range(12):
        later(world, 61)
    stops(world, master, second)
    later(world, 61)
    assert world.limits[GROUP][2] == 2
    starts(world, master, second)
    world.hear(world.job_event(master, second, job="job-2", started_at=world.now, revision=world.target().revision))
    later(world, 61)
    assert world.limits[GROUP][2] == 4


def test_what_is_launched_into_a_closed_cluster_is_ended_and_nobody_is_nominated() -> None:
    world, master, (second, elastic) = trained(after_job="stop", max_hours=5)
    later(world, 5 * HOUR)
    stops(world, master, second)
    late = world.launch(9)
    world.hear(world.tag(late), world.report(late))
    world.resync()
    assert world.standing(late) in (("REMOVED", "OVERTIME"), ("REMOVED", "TERMINATE_ISSUED"))
    assert {call[1] for call in world.calls if call[0] == "instances.terminate"} == {elastic, late}
    assert world.target().coordinator == master


def test_a_cluster_whose_only_base_node_is_lost_is_not_taken_for_closed() -> None:
    """For what it was once: its elastic nodes hold the state, and wait for the next master."""
    world, master, second = stopped_after_job()
    starts(world, master)
    world.hear(world.report(master, attempt=2))
    worker = world.launch(5)
    again = {"job": "job-2", "started_at": world.now}
    world.hear(world.job_event(master, revision=world.target().revision, **again))
    world.hear(world.tag(worker), world.report(worker))
    world.hear(world.job_event(master, worker, revision=world.target().revision, **again))
    world.machines[master].state = "terminated"
    world.hear(world.state_event(master, "terminated"))
    later(world, HOUR)
    assert world.standing(second) == ("REMOVED", "JOB_OVER")
    assert world.status(worker) == "ADD_QUEUED"


@pytest.mark.parametrize("how", ["stop", "terminate"])
def test_people_are_told_when_it_ends_and_how_to_go_on(how: str) -> None:
    world, master, (second,) = trained(0, after_job=how)
    for base in (master, second):
        world.machines[base].type = "c5.large"
    over(world, master)
    assert headlines(world)[-1].endswith(f"costs money, until about 2023-11-14 22:40:00Z (after_job={how})")
    later(world, 601)
    for base in (master, second):
        world.machines[base].state = "terminated" if how == "terminate" else "stopped"
        world.hear(world.state_event(base, world.machines[base].state))
    start = f"aws ec2 start-instances --instance-ids {master} {second}"
    go_on = start if how == "stop" else f"set the desired capacity of {GROUP} as it was"
    assert headlines(world)[-1] == f"  to go on: {go_on}"


def test_only_what_the_cluster_launched_is_ended_whatever_tags_say() -> None:
    world, master, (second,) = trained(0, after_job="terminate")
    stranger = world.launch(7, owned=False, base=True, **{"dyntrain:cluster": "demo"})
    world.hear(world.tag_event(stranger, 1, world.machines[stranger].tags, ["demo-aws-dl-cfn-elastic-worker"]))
    world.resync()
    over(world, master)
    later(world, 601)
    assert {call[1] for call in ends(world)} == {master, second}


def test_a_group_that_refuses_is_asked_again_and_told_of() -> None:
    world, master, _ = trained(0, after_job="terminate")
    over(world, master)
    no = Refused("ValidationError", "desiredSize equals minSize (1)")
    world.failing["groups.terminate"] = [no, no]
    later(world, 601)
    assert world.standing(master) == ("REMOVED", "GROUP_REFUSES")
    later(world, 61)
    assert world.standing(master) == ("REMOVED", "TERMINATE_ISSUED")
    assert ("GroupRefuses", "demo", 2) in world.metrics


def test_a_cluster_without_a_job_is_closed_at_its_idle_limit_with_its_elastic_nodes() -> None:
    world, master, (second, elastic) = trained(after_job="terminate", idle_hours=2)
    world.membership[elastic] = Member(GROUP, "in_service")
    world.limits[GROUP] = (0, 4, 3)
    later(world, 2 * HOUR - 60)
    assert ends(world) == set()
    later(world, 120)
    assert {call[1] for call in ends(world)} == {master, second, elastic}
    assert world.limits[GROUP] == (0, 4, 0)
    last = {entry["instance"]: entry["after"] for entry in world.trail if entry["kind"] == "status"}
    assert last[elastic] in ("REMOVED IDLE", "REMOVED TERMINATE_ISSUED")


def test_a_table_that_was_lost_makes_nobody_idle() -> None:
    """The controller knows of no job then, though one may have run for days."""
    world, _, _ = trained(0, after_job="terminate", idle_hours=2)
    world.wait(50 * HOUR)
    world.table.clear()
    world.stream.clear()
    for _ in range(12):
        later(world, 60)
    assert ends(world) == set()


@pytest.mark.parametrize("how", ["stop", "terminate"])
def test_a_cluster_is_closed_after_its_hours_though_its_job_runs(how: str) -> None:
    world, master, (second, elastic) = trained(after_job=how, max_hours=5)
    for _ in range(2):
        later(world, 2 * HOUR)
        world.hear(world.job_event(master, second, elastic, revision=world.target().revision))
    assert ends(world) == set()
    world.wait(HOUR)
    world.hear(world.job_event(master, second, elastic, revision=world.target().revision))
    later(world, 1)
    called = {call[0]: set(call[1:]) for call in ends(world)}
    if how == "stop":
        assert called["instances.stop"] == {master, second}
        assert elastic in called["instances.terminate"]
    else:
        assert {call[1] for call in ends(world)} == {master, second, elastic}


@pytest.mark.parametrize("limit", ["idle_hours", "max_hours"])
def test_a_limit_without_a_word_on_what_is_done_then_is_refused(limit: str) -> None:
    with pytest.raises(ValidationError, match="needs after_job"):
        ClusterPolicy.model_validate({"cluster": "demo", limit: 3})
    with pytest.raises(ValidationError, match=limit):
        ClusterPolicy.model_validate({"cluster": "demo", "after_job": "stop", limit: 0})
