"""Events in every spelling, order and number: what the controller makes of them (C1-C10, C14, C15, C28)."""

from __future__ import annotations

import pytest
from dyntrain.controller.contract.errors import Conflict, RetryLater
from fakes import ELASTIC, START, World, instance_id

KEY = ELASTIC.of("demo")
TAGGED = {"dyntrain:cluster": "demo", KEY: ""}
UNTAGGED = {"dyntrain:cluster": "demo"}


def ready(number: int = 1) -> tuple[World, str]:
    """A cluster with one instance that is prepared; no tag event has been told."""
    world = World()
    instance = world.launch(number)
    world.take_in(world.report(instance))
    world.stream.clear()
    world.wait(1)
    return world, instance


def test_c1_the_same_tag_event_five_times_gives_one_membership_revision() -> None:
    world, instance = ready()
    event = world.tag(instance)
    outcomes = [world.hear(event)[0].kind for _ in range(5)]
    assert outcomes == ["applied", "unchanged", "unchanged", "unchanged", "unchanged"]
    assert (world.target().revision, world.target().members) == (1, (instance,))


def test_c2_tag_versions_3_5_4_leave_the_state_of_5_and_note_4_as_stale() -> None:
    world, instance = ready()
    three, four = (world.tag_event(instance, version, TAGGED, [KEY]) for version in (3, 4))
    five = world.tag_event(instance, 5, UNTAGGED, [KEY])
    outcomes = [outcome.kind for event in (three, five, four) for outcome in world.take_in(event)]
    world.settle()
    assert outcomes == ["applied", "applied", "stale"]
    assert world.mirror(instance) == "REMOVED"


def test_c3_an_untag_that_arrives_after_the_retag_does_not_remove_the_worker() -> None:
    world, instance = ready()
    world.hear(world.tag_event(instance, 5, TAGGED, [KEY]))
    late = world.hear(world.tag_event(instance, 4, UNTAGGED, [KEY], at=world.now - 5))
    assert late[0].kind == "stale"
    assert world.status(instance) == "ADD_QUEUED"


NULLS = [
    ("aws.tag", "Tag Change on Resource", {"version-timestamp": None, "tag-policy-compliant": None}),
    ("aws.tag", "Tag Change on Resource", {"version-timestamp": "", "tags": {ELASTIC.of("demo"): None}}),
    (
        "aws.autoscaling",
        "EC2 Instance-launch Lifecycle Action",
        {"Origin": None, "Destination": None, "LifecycleActionToken": None},
    ),
    (
        "aws.health",
        "AWS Health Event",
        {"eventTypeCode": None, "lastUpdatedTime": None, "statusCode": None, "eventArn": None},
    ),
]


@pytest.mark.parametrize(("source", "kind", "nulls"), NULLS)
def test_c4_a_field_that_may_be_missing_may_be_null_or_empty_too(source: str, kind: str, nulls: dict) -> None:
    world = World()
    node = world.launch(1)
    full = {
        "aws.tag": world.tag(node)["detail"],
        "aws.autoscaling": world.hook_event(node, "launch", "t")["detail"],
        "aws.health": {
            "service": "EC2",
            "eventTypeCategory": "scheduledChange",
            "startTime": "Tue, 14 Nov 2023 23:00:00 GMT",
            "affectedEntities": [{"entityArn": "arn:of-something-else"}, {"entityValue": node, "status": None}],
        },
    }[source]
    event = world.event(source, kind, {**full, **nulls}, f"arn:aws:ec2:eu-central-1:111122223333:instance/{node}")
    assert [outcome.kind for outcome in world.hear(event)] == ["applied"]
    assert world.ports.nodes.get(node) is not None


def test_a_number_that_is_none_never_reaches_the_facts() -> None:
    """NaN compares with nothing: one in the job's start would be stored, and every later report lose to it or fail to
    be read.
    """
    world = World()
    spoilt = world.job_event(revision=1)
    spoilt["detail"]["started_at"] = float("nan")
    assert world.hear(spoilt)[0].kind == "quarantined"
    assert world.ports.jobs.get("demo") == (None, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 7.0},
        {"version": "7"},
        {"version-timestamp": "1700001001000"},
        {"version-timestamp": 1700001001000},
        {"tag-policy-compliant": "true", "surprise": {"deep": [1]}},
    ],
)
def test_c4_versions_as_text_or_float_and_unknown_fields_are_parsed(change: dict) -> None:
    world, instance = ready()
    event = world.tag_event(instance, 1, TAGGED, [KEY])
    event["detail"].update(change)
    event["replay-name"] = "archive"
    assert [outcome.kind for outcome in world.hear(event)] == ["applied"]
    assert world.status(instance) == "ADD_QUEUED"


@pytest.mark.parametrize("changed", [["Name"], ["elastic_worker_status"]])
def test_c5_an_unrelated_key_or_our_own_status_tag_writes_nothing(changed: list[str]) -> None:
    world, instance = ready()
    world.hear(world.tag(instance))
    writes = world.count("nodes.put")
    outcome = world.hear(world.tag_event(instance, 9, TAGGED, changed))[0]
    assert outcome.kind == "ignored"
    assert world.count("nodes.put") == writes


def test_c6_a_tag_event_that_never_comes_is_found_by_the_next_resync() -> None:
    world = World()
    instance = world.launch(1, elastic=False, owned=False)
    world.resync()
    world.machines[instance].tags[KEY] = ""
    world.wait(60)
    world.hear(world.report(instance))
    world.wait(60)
    world.resync()
    assert world.status(instance) == "ADD_QUEUED"
    assert world.target().members == (instance,)


def test_c6_a_lost_lifecycle_event_is_answered_by_instance_id_after_a_resync() -> None:
    world = World()
    instance = world.member(1)
    world.resync()
    world.wait(5)
    world.hear(world.report(instance))
    assert ("groups.complete", instance, "demo-launch", "", "CONTINUE") in world.calls


def test_c8_a_malformed_instance_id_is_quarantined_with_its_reason() -> None:
    world = World()
    event = world.tag_event("i-xyz", 1, TAGGED, [KEY])
    state = world.event(
        "aws.ec2", "EC2 Instance State-change Notification", {"instance-id": "web-1", "state": "running"}
    )
    outcomes = world.hear(event, state)
    assert [outcome.kind for outcome in outcomes] == ["quarantined", "quarantined"]
    assert "i-xyz" in outcomes[0].reason
    assert "instance-id" in outcomes[1].reason
    assert world.count("nodes.put") == 0


def test_c8_an_instance_that_ec2_does_not_show_is_not_taken_for_terminated() -> None:
    world = World()
    unknown = instance_id(77)
    world.hear(world.tag_event(unknown, 1, TAGGED, [KEY]))
    world.wait(120)
    world.resync()
    assert world.status(unknown) == "WAITING"


def test_c9_terminated_before_prepared_never_joins_however_late_the_report() -> None:
    world = World()
    instance = world.launch(1)
    world.hear(world.tag(instance), world.state_event(instance, "terminated"))
    world.wait(30)
    world.hear(world.report(instance))
    assert world.standing(instance) == ("GONE", "TERMINATED")
    assert "/dyntrain/demo/target" not in world.parameters


def test_c10_a_terminate_event_that_overtakes_the_launch_event_wins() -> None:
    world = World()
    instance = world.member(1, phase="terminating")
    later = world.hook_event(instance, "terminate", "t-2", at=world.now + 3)
    earlier = world.hook_event(instance, "launch", "t-1", at=world.now)
    world.hear(later)
    world.hear(earlier)
    world.hear(world.report(instance, at=world.now + 4))
    assert world.standing(instance) == ("REMOVED", "GROUP_TERMINATES")
    assert ("groups.complete", instance, "demo-terminate", "t-2", "CONTINUE") in world.calls
    assert not any(call[0] == "groups.complete" and "t-1" in call for call in world.calls)


def test_c14_a_test_notification_is_ignored() -> None:
    world = World()
    notification = {
        "AccountId": "111122223333",
        "AutoScalingGroupARN": "arn:aws:autoscaling:eu-west-1:1:autoScalingGroup:x:autoScalingGroupName/g",
        "AutoScalingGroupName": "g",
        "Event": "autoscaling:TEST_NOTIFICATION",
        "RequestId": "0000",
        "Service": "AWS Auto Scaling",
        "Time": "2023-11-14T22:30:00Z",
    }
    outcome = world.hear(world.event("aws.autoscaling", "EC2 Instance-launch Lifecycle Action", notification))[0]
    assert outcome.kind == "ignored"
    assert not world.table


def test_c15_an_instance_that_enters_the_warm_pool_is_no_member_until_it_is_taken_out() -> None:
    world = World()
    instance = world.member(1)
    world.hear(world.hook_event(instance, "launch", "t-1", Origin="EC2", Destination="WarmPool"))
    world.wait(20)
    world.hear(world.report(instance))
    assert world.standing(instance) == ("WAITING", "IN_WARM_POOL")
    assert ("groups.complete", instance, "demo-launch", "t-1", "CONTINUE") in world.calls
    world.wait(20)
    world.hear(world.hook_event(instance, "launch", "t-2", Origin="WarmPool", Destination="AutoScalingGroup"))
    assert world.status(instance) == "ADD_QUEUED"
    assert ("groups.complete", instance, "demo-launch", "t-2", "CONTINUE") in world.calls


def test_c17_a_failed_launch_without_an_instance_does_not_disturb_anything() -> None:
    world = World()
    detail = {"EC2InstanceId": "", "AutoScalingGroupName": "demo-workers", "StatusMessage": "no capacity"}
    outcome = world.hear(world.event("aws.autoscaling", "EC2 Instance Launch Unsuccessful", detail))[0]
    assert outcome.kind == "applied"
    assert world.count("groups.set_desired") == 0


def test_c19_a_lost_race_and_a_write_that_timed_out_after_it_took_effect_end_in_the_same_state() -> None:
    world, instance = ready()
    world.failing["nodes.put"] = [Conflict("somebody was faster"), RetryLater("timed out")]
    event = world.tag(instance)
    with pytest.raises(RetryLater):
        world.take_in(event)
    assert [outcome.kind for outcome in world.hear(event)] == ["applied"]
    assert world.status(instance) == "ADD_QUEUED"


def test_c19_two_writers_of_one_node_lose_nothing() -> None:
    world, instance = ready()
    world.before["nodes.put"] = [lambda: world.take_in(world.state_event(instance, "running"))]
    world.hear(world.tag(instance))
    facts = world.ports.nodes.get(instance)
    assert facts is not None
    assert facts.facts.tags_event is not None
    assert facts.facts.state_event is not None


@pytest.mark.parametrize("poison", [{}, {"source": "aws.tag"}, {"source": 3, "detail-type": [], "time": "never"}])
def test_c22_a_poison_payload_is_an_outcome_and_the_good_ones_beside_it_are_handled(poison: dict) -> None:
    world, instance = ready()
    outcomes = world.hear(poison, world.tag(instance))
    assert [outcome.kind for outcome in outcomes] == ["quarantined", "applied"]
    assert outcomes[0].reason


def test_c28_a_replayed_event_of_yesterday_changes_no_state() -> None:
    world, instance = ready()
    world.hear(world.tag_event(instance, 5, TAGGED, [KEY]))
    members = world.target().members
    yesterday = START - 80_000
    outcomes = world.hear(
        world.tag_event(instance, 2, UNTAGGED, [KEY], at=yesterday),
        world.state_event(instance, "stopping", at=yesterday),
        world.report(instance, at=yesterday),
    )
    assert outcomes[0].kind == "stale"
    assert outcomes[2].kind == "stale"
    assert world.resync().complete
    assert world.target().members == members


def test_an_event_that_no_rule_sends_is_a_counted_no_op() -> None:
    world = World()
    outcome = world.hear(world.event("aws.s3", "Object Created", {}))[0]
    assert (outcome.kind, "Object Created" in outcome.reason) == ("ignored", True)
