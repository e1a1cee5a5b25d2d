"""What keeps a mistake from becoming an outage, and what a person is told: C8, C11, C13, C18, C22, C24, C25, orphans,
protection.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from dyntrain.controller import wiring
from dyntrain.controller.adapters.items import readable_records
from dyntrain.controller.adapters.metrics import EmbeddedMetrics
from dyntrain.controller.contract.errors import Quarantined, Refused, RetryLater
from fakes import Member, World, instance_id


def job(elastic: int, **policy: object) -> tuple[World, str, list[str]]:
    world = World(**policy)
    master = world.launch(1000, base=True, NodeType="Master")
    workers = [world.launch(number) for number in range(1, elastic + 1)]
    world.hear(
        world.report(master), *(world.tag(worker) for worker in workers), *(world.report(worker) for worker in workers)
    )
    world.hear(world.job_event(master, *workers, revision=world.target().revision))
    world.wait(60)
    world.hear(world.job_event(master, *workers, revision=world.target().revision))
    return world, master, workers


def launching(**policy: object) -> tuple[World, str]:
    world = World(**policy)
    instance = world.member(1)
    world.hear(world.hook_event(instance, "launch", "t-1"), world.report(instance, "alive"))
    return world, instance


def test_c8_an_unknown_instance_is_asked_for_with_growing_delay_reported_and_welcome_when_it_shows() -> None:
    world = World()
    unknown = instance_id(77)
    tags = {"demo-aws-dl-cfn-elastic-worker": "", "dyntrain:cluster": "demo"}
    world.hear(world.tag_event(unknown, 1, tags, list(tags)))
    minutes = []
    for minute in range(40):
        before = world.count("instances.by_id")
        world.resync()
        if world.count("instances.by_id") > before:
            minutes.append(minute)
        world.wait(60)
    assert minutes == [0, 1, 3, 7, 15, 31]
    assert world.standing(unknown) == ("WAITING", "UNKNOWN_TO_EC2")
    assert ("UnknownInstance", "demo", 1) in world.metrics
    assert not any(call[0].startswith("instances.") and unknown in call for call in world.calls)
    world.launch(77)
    world.wait(3600)
    world.hear(world.report(unknown, "alive"))
    world.resync()
    assert world.standing(unknown) == ("WAITING", "PREPARING")


def test_c8_a_member_that_ec2_hides_for_a_moment_stays_and_one_hidden_for_hours_leaves_and_may_return() -> None:
    world, _master, workers = job(3)
    world.hidden.add(workers[0])
    world.resync()
    assert workers[0] in world.target().members
    for _ in range(300):
        world.wait(60)
        world.resync()
    assert workers[0] not in world.target().members
    assert world.standing(workers[0])[1] == "UNKNOWN_TO_EC2"
    assert not any(call[0] == "instances.terminate" and workers[0] in call for call in world.calls)
    world.hidden.clear()
    for _ in range(61):
        world.wait(60)
        world.resync()
    assert workers[0] in world.target().members


def test_c11_at_the_global_cap_the_launch_is_abandoned_once() -> None:
    world, instance = launching(hook_cap_seconds=600.0)
    for _ in range(15):
        world.wait(60)
        world.resync()
    assert world.count("groups.heartbeat") == 9
    assert [call[2:] for call in world.calls if call[0] == "groups.complete"] == [("demo-launch", "t-1", "ABANDON")]
    assert ("PreparationAbandoned", "demo", 1) in world.metrics
    world.hear(world.report(instance))
    assert world.standing(instance) == ("REMOVED", "ABANDONED")
    assert instance not in world.decision().membership.members


def test_c12_a_launch_that_was_over_before_our_abandon_may_still_prepare_later() -> None:
    world, instance = launching()
    world.stale_tokens.add("t-1")
    world.membership[instance] = Member("demo-workers", "in_service")
    world.hear(world.report(instance, "prepare_failed", reason="exit 1"))
    world.wait(30)
    world.hear(world.report(instance, "prepared", attempt=2))
    world.resync()
    assert world.status(instance) == "ADD_QUEUED"


@pytest.mark.parametrize("refusal", ["stale", "ValidationError"])
def test_c13_a_heartbeat_that_is_refused_stops(refusal: str) -> None:
    world, instance = launching()
    if refusal == "stale":
        world.stale_tokens.add("t-1")
        world.membership[instance].waits = None
    else:
        world.failing["groups.heartbeat"] = [Refused("ValidationError", "1 validation error detected")]
    for _ in range(5):
        world.wait(60)
        world.resync()
    assert sum(call[0] == "groups.heartbeat" and call[3] == "t-1" for call in world.calls) == 1


@pytest.mark.parametrize(("outcome", "answer"), [("prepared", "CONTINUE"), ("prepare_failed", "ABANDON")])
def test_a_launch_whose_heartbeat_was_refused_once_is_answered_all_the_same(outcome: str, answer: str) -> None:
    """Rights that were missing for a minute: the group would give the launch up, and launch the next one for it."""
    world, instance = launching()
    world.failing["groups.heartbeat"] = [Refused("AccessDenied", "not authorized")]
    world.wait(60)
    world.resync()
    world.wait(1)
    world.hear(world.report(instance, outcome))
    world.resync()
    assert [call[-1] for call in world.calls if call[0] == "groups.complete"] == [answer]


def test_c18_a_reading_that_would_remove_most_members_waits_for_a_second_one() -> None:
    world, master, workers = job(4)
    for worker in workers[:3]:
        del world.machines[worker].tags["demo-aws-dl-cfn-elastic-worker"]
    first = world.resync()
    assert first.held == ("demo",)
    assert set(workers) <= set(world.target().members)
    assert ("ResyncHeld", "demo", 1) in world.metrics
    world.wait(60)
    assert world.resync().held == ()
    assert world.target().members == (master, workers[3])


def test_c18_a_second_reading_that_finds_the_members_again_clears_the_doubt() -> None:
    world, _, workers = job(4)
    tags = [dict(world.machines[worker].tags) for worker in workers]
    for reading in ("lost", "there", "lost"):
        for worker, all_tags in zip(workers, tags, strict=True):
            world.machines[worker].tags = (
                dict(all_tags) if reading == "there" else {"Name": "x", "dyntrain:cluster": "demo"}
            )
        held = world.resync().held
        world.wait(60)
        assert held == (() if reading == "there" else ("demo",))
    assert set(workers) <= set(world.target().members)


def test_c18_few_losses_are_believed_at_once() -> None:
    world, _, workers = job(4)
    del world.machines[workers[0]].tags["demo-aws-dl-cfn-elastic-worker"]
    world.resync()
    assert workers[0] not in world.target().members


def test_c22_a_poison_record_is_set_aside_with_its_reason_and_the_others_are_handled() -> None:
    world = World()
    worker = world.launch(1)
    world.take_in(world.tag(worker), world.report(worker))
    poison = {
        "NewImage": {
            "pk": {"S": "node#i-0000dead"},
            "sk": {"S": "facts"},
            "wake": {"BOOL": True},
            "facts": {"S": "{"},
            "version": {"N": "1"},
        }
    }
    good, problems = readable_records([poison, *world.stream, {"NewImage": {"wake": {"BOOL": True}}}])
    assert good == world.stream
    assert "node#i-0000dead" in problems[0]
    assert "has no key" in problems[1]
    assert issubclass(Quarantined, Exception)


def test_c24_a_bulk_untag_raises_one_alarm_for_those_that_are_held() -> None:
    world, _, workers = job(4, min_workers=3)
    world.wait(1)
    world.take_in(*(world.tag(worker, present=False) for worker in workers))
    world.settle()
    world.resync()
    world.resync()
    assert [metric for metric in world.metrics if metric[0] == "HeldByMinimum"] == [("HeldByMinimum", "demo", 2)]
    assert {entry["instance"] for entry in world.trail if entry["kind"] == "HeldByMinimum"} == set(workers[:2])


def test_c25_a_base_node_that_stops_is_an_alarm_and_nothing_else() -> None:
    world, master, _ = job(0)
    world.wait(1)
    world.hear(world.state_event(master, "stopping"))
    world.resync()
    assert [metric for metric in world.metrics if metric[0] == "BaseNodeAway"] == [("BaseNodeAway", "demo", 1)]
    assert world.target().members == (master,)


def test_metrics_are_lines_that_cloudwatch_reads(capsys: pytest.CaptureFixture[str]) -> None:
    EmbeddedMetrics("facts-1").count("HeldByMinimum", "demo", 2)
    line = json.loads(capsys.readouterr().out)
    assert (line["table"], line["cluster"], line["HeldByMinimum"]) == ("facts-1", "demo", 2)
    definition = line["_aws"]["CloudWatchMetrics"][0]
    assert (definition["Namespace"], definition["Metrics"][0]["Name"]) == ("dyntrain", "HeldByMinimum")
    assert definition["Dimensions"] == [["table"], ["table", "cluster"]]


def test_c18_a_reading_that_fails_and_a_cluster_that_is_given_up_are_counted_for_an_alarm() -> None:
    """A permission that is missing would otherwise be a line in a log each minute, and a cluster that nobody looks
    after.
    """
    world, *_ = job(1)
    world.failing["instances.tagged"] = [Refused("UnauthorizedOperation", "You are not authorized")]
    assert not world.resync().complete
    assert world.metrics == [("ReadFailed", "demo", 1)]
    world.failing["nodes.of_cluster"] = [RetryLater("away"), Refused("AccessDeniedException", "dynamodb:Query")]
    world.resync()
    assert world.metrics == [("ReadFailed", "demo", 1)] * 2 + [("GivenUp", "demo", 1)]


def test_base_nodes_in_a_group_stay_protected_though_somebody_takes_it_away() -> None:
    world = World()
    base = world.member(1, base=True, phase="in_service")
    world.resync()
    assert world.membership[base].protected
    world.wait(60)
    world.resync()
    world.membership[base].protected = False
    for _ in range(3):
        world.wait(60)
        world.resync()
    assert world.membership[base].protected
    assert world.count("groups.protect") == 2


def test_an_orphan_is_reported_once_after_the_grace_period_and_left_running_by_default() -> None:
    world = World(orphan_grace_seconds=600.0)
    orphan = world.launch(1)
    world.hear(world.report(orphan, "alive"))
    world.resync()
    for _ in range(9):
        world.wait(60)
        world.resync()
    assert world.metrics == []
    for _ in range(20):
        world.wait(60)
        world.resync()
    assert world.metrics == [("Orphan", "demo", 1)]
    assert [entry["instance"] for entry in world.trail if entry["kind"] == "Orphan"] == [orphan]
    assert world.count("instances.terminate") == 0


def test_an_orphan_is_terminated_only_if_the_policy_says_so_and_the_cluster_launched_it() -> None:
    world = World(orphan_grace_seconds=600.0, terminate_orphans=True)
    ours, foreign = world.launch(1), world.launch(2, owned=False)
    failed = world.launch(3)
    world.hear(world.tag(failed), world.report(failed, "prepare_failed", reason="exit 1"))
    member = world.member(4, phase="in_service")
    working = world.launch(5)
    world.hear(world.tag(working), world.report(working))
    for _ in range(15):
        world.wait(60)
        world.resync()
    ended = {instance for call in world.calls if call[0] == "instances.terminate" for instance in call[1:]}
    assert ended == {ours, failed}
    assert [call[1] for call in world.calls if call[0] == "groups.terminate"] == [member]
    assert world.machines[foreign].state == "running"


def test_an_instance_of_the_clusters_template_is_an_orphan_though_it_lost_all_its_tags_and_is_left_to_a_person() -> (
    None
):
    """No tag leads to it any more, and it costs money; without the ownership tag it is reported, never ended."""
    world = World("demo", "other", orphan_grace_seconds=600.0, terminate_orphans=True)
    bare, theirs = (world.launch(number, owned=False, elastic=False) for number in (1, 2))
    world.machines[bare].template = "demo-aws-dl-cfn-worker-ec2-launch-template"
    world.machines[theirs].template = "somebody-elses"
    for _ in range(15):
        world.wait(60)
        world.resync()
    assert [entry["instance"] for entry in world.trail if entry["kind"] == "Orphan"] == [bare]
    assert world.count("instances.terminate") == 0
    assert world.ports.nodes.get(theirs) is None


def test_one_whose_tags_are_taken_off_while_it_is_known_is_an_orphan_too() -> None:
    world = World(orphan_grace_seconds=600.0)
    node = world.launch(1)
    world.machines[node].template = "demo-aws-dl-cfn-worker-ec2-launch-template"
    world.resync()
    world.wait(60)
    world.machines[node].tags.clear()
    for _ in range(15):
        world.wait(60)
        world.resync()
    assert ("Orphan", "demo", 1) in world.metrics


def test_what_has_left_and_still_runs_is_an_orphan_whoever_refused_to_end_it() -> None:
    world, master, (worker,) = job(1, orphan_grace_seconds=600.0)
    world.hear(world.tag(worker, present=False))
    world.failing["instances.terminate"] = [Refused("UnauthorizedOperation", "no")] * 20
    world.hear(world.job_event(master, revision=world.target().revision))
    for _ in range(15):
        world.wait(60)
        world.resync()
    assert world.standing(worker) == ("REMOVED", "UNTAGGED")
    assert [metric for metric in world.metrics if metric[0] == "Orphan"] == [("Orphan", "demo", 1)]


def test_an_instance_that_prepares_within_the_grace_period_is_no_orphan() -> None:
    world = World(orphan_grace_seconds=600.0, terminate_orphans=True)
    node = world.launch(1)
    world.resync()
    world.wait(599)
    world.hear(world.report(node))
    world.wait(6000)
    world.resync()
    assert world.count("instances.terminate") == 0


def test_one_clusters_failure_does_not_keep_the_others_from_their_turn() -> None:
    world = World("demo", "other")
    mine, theirs = world.launch(1, "demo"), world.launch(2, "other")
    world.take_in(
        world.tag(mine), world.report(mine), world.tag(theirs, "other"), world.report(theirs, cluster="other")
    )
    world.failing["parameters.put_target"] = [RetryLater("away")]
    with pytest.raises(RetryLater):
        world.settle()
    assert world.target("other").members == (theirs,)


@pytest.fixture
def function_of_a_stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that the controller's stack told its table; wiring remembers what it was told."""
    monkeypatch.setenv("DYNTRAIN_TABLE", "facts")
    for remembered in (wiring.settings, wiring._ports, wiring._policy_registry):
        remembered.cache_clear()
    yield
    for remembered in (wiring.settings, wiring._ports, wiring._policy_registry):
        remembered.cache_clear()


def test_c22_a_poison_event_is_raised_so_that_it_reaches_the_dead_letter_queue_with_its_reason(
    function_of_a_stack: None,
) -> None:
    world = World()
    worker = world.launch(1)
    poison = world.tag_event("i-not-an-id", 1, {}, ["demo-aws-dl-cfn-elastic-worker"])
    with pytest.raises(Quarantined, match="'i-not-an-id' is no instance id"):
        wiring.on_event(poison)
    assert world.hear(poison, world.tag(worker))[1].kind == "applied"
    with pytest.raises(Quarantined, match="has no key"):
        wiring.on_records([{"NewImage": {"wake": {"BOOL": True}}}])


def test_e4_the_job_ends_while_nodes_prepare_queue_and_leave() -> None:
    world, master, (staying, leaving) = job(2)
    preparing, queued = world.member(10), world.launch(11)
    world.wait(1)
    world.hear(
        world.hook_event(preparing, "launch", "up"),
        world.tag(queued),
        world.report(queued),
        world.tag(leaving, present=False),
    )
    world.resync()
    assert [world.status(node) for node in (preparing, queued, leaving)] == ["WAITING", "ADD_QUEUED", "REMOVAL_QUEUED"]
    world.hear(world.job_event(master, staying, leaving, revision=world.target().revision, state="finished"))
    assert {world.status(node) for node in (staying, leaving, preparing, queued)} == {"REMOVED"}
    assert {name for call in world.calls if call[0] == "instances.terminate" for name in call[1:]} == {
        staying,
        leaving,
        queued,
    }
    assert world.membership[preparing].phase == "terminating"
    world.wait(1)
    world.hear(world.hook_event(preparing, "terminate", "down"))
    assert ("groups.complete", preparing, "demo-terminate", "down", "CONTINUE") in world.calls
    assert [world.mirror(node) for node in (staying, leaving, preparing, queued)] == ["REMOVED"] * 4
    assert (world.status(master), world.target().members, world.target().finished) == ("ADD_QUEUED", (master,), True)
