"""Who is in the job, and how nodes come and go (C16, C18, C20-C26, C29, C31, C33-C36)."""

from __future__ import annotations

import json

import pytest
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.contract.errors import RetryLater
from dyntrain.controller.contract.messages import members_digest
from fakes import World, instance_id, running_cluster


def test_the_statuses_of_a_worker_go_through_their_values_and_it_is_terminated_after_the_tag_says_removed() -> None:
    world, master, _ = running_cluster(0)
    worker = world.launch(1)
    seen = []
    for event in (
        lambda: world.tag(worker),
        lambda: world.report(worker),
        lambda: world.job_event(master, forming=[worker], revision=2),
        lambda: world.job_event(master, worker, revision=2),
        lambda: world.tag(worker, present=False),
        lambda: world.job_event(master, worker, revision=3),
        lambda: world.job_event(master, revision=3),
    ):
        world.wait(1)
        world.hear(event())
        seen.append(world.mirror(worker))
    assert seen == [None, "ADD_QUEUED", "ADD_QUEUED", "ADDED", "REMOVAL_QUEUED", "REMOVAL_QUEUED", "REMOVED"]
    ends = [call[0] for call in world.calls if "REMOVED" in call or call[0] == "instances.terminate"]
    assert ends == ["instances.tag", "instances.terminate"]
    world.hear(world.state_event(worker, "terminated"))
    assert world.status(worker) == "GONE"


def test_a_removed_status_waits_until_the_coordinator_obeys_the_target_without_the_node() -> None:
    world, master, _ = running_cluster(0)
    worker = world.launch(1)
    world.hear(world.tag(worker), world.report(worker))
    world.resync()
    world.hear(world.tag(worker, present=False))
    assert world.standing(worker) == ("REMOVAL_QUEUED", "LEAVE_UNCONFIRMED")
    assert world.count("instances.terminate") == 0
    world.hear(world.job_event(master, revision=world.target().revision))
    assert world.count("instances.terminate") == 1


def test_c16_two_up_and_two_down_heard_together_are_one_change() -> None:
    world, _, workers = running_cluster(2)
    newcomers = [world.member(number, phase="in_service") for number in (11, 12)]
    before = world.target().revision
    world.take_in(
        *(world.hook_event(new, "launch", f"t-{new}") for new in newcomers), *(world.report(new) for new in newcomers)
    )
    world.take_in(*(world.tag(old, present=False) for old in workers))
    world.settle()
    assert world.target().revision == before + 1
    assert set(newcomers) <= set(world.target().members)
    assert not set(workers) & set(world.target().members)


def test_c18_a_throttled_read_changes_nothing_and_ticks_all_the_same() -> None:
    world, _, workers = running_cluster(2)
    target = world.target()
    world.wait(60)
    for operation in ("instances.tagged", "groups.members", "nodes.of_cluster"):
        world.failing[operation] = [RetryLater("Throttling")]
        ticks = world.count("clusters.tick")
        assert not world.resync().complete
        assert world.count("clusters.tick") == ticks + 1
    assert world.target() == target
    assert set(workers) <= set(world.decision().membership.members)


def test_c20_a_target_that_did_not_reach_the_parameter_store_is_published_by_the_next_pass() -> None:
    world, _, _ = running_cluster(1)
    worker = world.launch(5)
    world.take_in(world.tag(worker), world.report(worker))
    world.failing["parameters.put_target"] = [RetryLater("SSM is away")]
    with pytest.raises(RetryLater):
        world.settle()
    assert worker not in world.target().members
    world.resync()
    assert worker in world.target().members


def test_c20_a_parameter_that_somebody_overwrote_is_repaired_by_the_tick() -> None:
    world, _, workers = running_cluster(1)
    world.parameters["/dyntrain/demo/target"] = "not json"
    world.resync()
    assert world.target().members[-1:] == tuple(workers)


def test_c21_a_list_above_4_kb_is_pointed_to_and_keeps_its_digest() -> None:
    world = World(max_workers=500)
    nodes = [world.launch(number) for number in range(1, 301)]
    world.take_in(*(world.tag(node) for node in nodes), *(world.report(node) for node in nodes))
    world.settle()
    target = world.target()
    assert target.members is None
    assert target.pointer == "cluster#demo/target"
    full = world.ports.clusters.get("demo").membership.target
    assert (target.count, target.digest) == (300, members_digest(full.members or ()))


def test_c23_spot_notice_rebalance_and_shutdown_are_one_removal_with_the_earliest_deadline() -> None:
    world, _, (worker,) = running_cluster(1)
    revision, now = world.target().revision, world.now
    world.hear(world.event("aws.ec2", "EC2 Instance Rebalance Recommendation", {"instance-id": worker}, at=now))
    world.hear(
        world.event(
            "aws.ec2",
            "EC2 Spot Instance Interruption Warning",
            {"instance-id": worker, "instance-action": "terminate"},
            at=now + 30,
        )
    )
    world.hear(world.state_event(worker, "shutting-down"))
    assert world.target().revision == revision + 1
    assert world.target().leave_by == {worker: pytest.approx(now + 120)}


def test_c24_bulk_untag_holds_the_longest_standing_members_up_to_the_minimum() -> None:
    world, master, workers = running_cluster(4, min_workers=3)
    world.take_in(*(world.tag(worker, present=False) for worker in workers))
    world.settle()
    assert world.target().members == (master, *workers[:2])
    assert [world.standing(worker) for worker in workers[:2]] == [("ADDED", "HELD_BY_MINIMUM")] * 2
    assert [world.status(worker) for worker in workers[2:]] == ["REMOVAL_QUEUED"] * 2


def test_c24_what_is_above_the_maximum_waits_and_says_so() -> None:
    world, _, workers = running_cluster(2, max_workers=3)
    extra = world.launch(9)
    world.wait(1)
    world.hear(world.tag(extra), world.report(extra))
    assert world.standing(extra) == ("ADD_QUEUED", "ABOVE_MAXIMUM")
    world.hear(world.tag(workers[0], present=False))
    assert extra in world.target().members


@pytest.mark.parametrize("state", ["stopping", "stopped"])
def test_c25_a_base_node_that_is_untagged_or_stopping_stays_and_is_never_terminated(state: str) -> None:
    world, master, _ = running_cluster(0)
    world.hear(world.tag_event(master, 9, world.machines[master].tags, [ELASTIC_TAG.of("demo")]))
    world.hear(world.state_event(master, state))
    assert world.standing(master) == ("ADDED", "BASE_PROTECTED")
    assert world.target().members == (master,)
    assert world.mirror(master) is None
    assert world.count("instances.terminate") == 0


def test_c26_clusters_of_one_region_do_not_take_each_others_instances() -> None:
    world = World("demo", "other")
    mine, theirs = world.launch(1, "demo"), world.launch(2, "other")
    world.hear(world.tag(mine), world.report(mine), world.tag(theirs, "other"), world.report(theirs, cluster="other"))
    assert world.target("demo").members == (mine,)
    assert world.target("other").members == (theirs,)


def test_c26_an_invalid_policy_stops_its_own_cluster_only() -> None:
    world = World("demo")
    world.parameters["/dyntrain/broken/policy"] = json.dumps({"cluster": "broken", "max_workers": "many"})
    node = world.launch(1)
    world.hear(world.tag(node), world.report(node))
    assert world.target().members == (node,)
    assert "max_workers" in world.registry.problems()["broken"]


def test_c29_three_up_and_two_down_before_they_are_prepared_lets_one_join() -> None:
    world, _, _ = running_cluster(0)
    up = [world.member(number) for number in (1, 2, 3)]
    world.hear(*(world.hook_event(node, "launch", f"up-{node}") for node in up))
    for node in up[1:]:
        world.membership[node].phase, world.membership[node].waits = "terminating", "terminate"
    world.wait(2)
    world.hear(*(world.hook_event(node, "terminate", f"down-{node}") for node in up[1:]))
    world.wait(2)
    world.hear(*(world.report(node) for node in up))
    assert [world.status(node) for node in up] == ["ADD_QUEUED", "REMOVED", "REMOVED"]
    answers = sorted((call[2], call[3], call[4]) for call in world.calls if call[0] == "groups.complete")
    assert answers == sorted(
        [
            ("demo-launch", f"up-{up[0]}", "CONTINUE"),
            *(("demo-terminate", f"down-{node}", "CONTINUE") for node in up[1:]),
        ]
    )


def test_c31_untagged_and_tagged_again_before_the_boundary_it_stays() -> None:
    """While the coordinator may still obey the target without it, nobody is told that it is in the job."""
    world, master, (worker,) = running_cluster(1)
    world.hear(world.tag(worker, present=False))
    world.wait(1)
    world.hear(world.tag(worker))
    revision = world.target().revision
    for known, status in ((revision - 2, "ADD_QUEUED"), (revision - 1, "ADD_QUEUED"), (revision, "ADDED")):
        world.hear(world.job_event(master, worker, revision=known))
        assert world.mirror(worker) == status
    assert world.count("instances.terminate") == 0


def test_who_has_not_left_yet_is_not_in_the_job_again() -> None:
    """Tagged again while it leaves: the coordinator knows of that, and has formed a generation without it."""
    world, master, (worker,) = running_cluster(1)
    world.hear(world.tag(worker, present=False))
    world.wait(1)
    world.hear(world.tag(worker))
    member = {"instance_id": worker, "rank": 1, "active": True, "leaving": True, "joined_epoch": 0, "joined_at": 0.0}
    leaving = world.job_event(master, revision=world.target().revision)
    leaving["detail"]["members"].append(member)
    world.hear(leaving)
    assert world.mirror(worker) == "ADD_QUEUED"


def test_c31_tagged_again_after_it_left_it_joins_again() -> None:
    world, master, (worker,) = running_cluster(1)
    world.machines[worker].tags.pop("dyntrain:cluster")
    world.hear(world.tag_event(worker, 8, {}, [ELASTIC_TAG.of("demo")]))
    world.hear(world.job_event(master, revision=world.target().revision))
    assert world.standing(worker) == ("REMOVED", "NOT_OWNED")
    world.wait(1)
    world.hear(world.tag_event(worker, 9, {ELASTIC_TAG.of("demo"): ""}, [ELASTIC_TAG.of("demo")]))
    assert world.status(worker) == "ADD_QUEUED"
    assert worker in world.target().members


def test_c31_tagged_again_after_terminate_was_ordered_it_stays_removed_with_that_reason() -> None:
    world, master, (worker,) = running_cluster(1)
    world.hear(world.tag(worker, present=False))
    world.hear(world.job_event(master, revision=world.target().revision))
    world.hear(world.tag(worker))
    assert world.standing(worker) == ("REMOVED", "TERMINATE_ISSUED")


def test_c33_an_instance_tagged_by_hand_waits_with_that_reason_and_is_never_terminated() -> None:
    world, _, _ = running_cluster(0)
    instance = world.launch(5, owned=False)
    world.hear(world.tag(instance))
    assert world.standing(instance) == ("WAITING", "NO_BOOTSTRAP")
    world.hear(world.tag(instance, present=False))
    world.resync()
    assert world.standing(instance) == ("REMOVED", "NOT_OWNED")
    assert world.count("instances.terminate") == 0


def test_c34_a_group_member_that_loses_its_tag_is_terminated_in_the_group_with_decrement() -> None:
    world, master, _ = running_cluster(0)
    worker = world.member(1)
    world.hear(world.hook_event(worker, "launch", "t-1"))
    world.wait(1)
    world.hear(world.report(worker))
    world.hear(world.job_event(master, worker, revision=world.target().revision))
    world.wait(1)
    world.hear(world.tag(worker, present=False))
    world.hear(world.job_event(master, revision=world.target().revision))
    assert ("groups.terminate", worker, "demo-workers") in world.calls
    assert world.count("instances.terminate") == 0
    world.wait(1)
    world.hear(world.hook_event(worker, "terminate", "t-2"))
    assert ("groups.complete", worker, "demo-terminate", "t-2", "CONTINUE") in world.calls


def test_c34_at_the_groups_minimum_the_refusal_is_told_and_not_asked_again_at_once() -> None:
    world, _, _ = running_cluster(0)
    worker = world.member(1, phase="in_service")
    world.ports.groups.minimum_reached = True  # type: ignore[attr-defined]
    world.resync()
    world.hear(world.report(worker))
    world.wait(1)
    world.hear(world.tag(worker, present=False))
    world.hear(world.job_event(revision=world.target().revision))
    world.resync()
    assert world.standing(worker) == ("REMOVED", "GROUP_REFUSES")
    assert world.count("groups.terminate") == 1
    world.wait(61)
    world.resync()
    assert world.count("groups.terminate") == 2


def test_c35_a_lost_report_is_made_good_by_its_repetition() -> None:
    world, master, _ = running_cluster(0)
    worker = world.launch(1)
    world.hear(world.tag(worker))
    world.report(worker)  # never delivered
    world.wait(4)
    world.hear(world.report(worker))
    world.job_event(master, worker, revision=2)  # never delivered
    world.hear(world.job_event(master, worker, revision=2))
    assert world.mirror(worker) == "ADDED"


def test_c35_an_effect_whose_acknowledgement_was_lost_is_repeated_until_it_is_remembered() -> None:
    world, _, _ = running_cluster(0)
    worker = world.launch(1)
    world.take_in(world.tag(worker), world.report(worker))
    world.failing["nodes.put"] = [RetryLater("the table is away")]
    with pytest.raises(RetryLater):
        world.settle()
    world.resync()
    facts = world.ports.nodes.get(worker)
    assert facts is not None
    assert facts.facts.acks.status.value == "ADD_QUEUED WAITS_FOR_BOUNDARY"
    assert world.mirror(worker) == "ADD_QUEUED"
    assert world.count("parameters.put_target") == 2


def test_c36_without_a_job_removals_proceed_and_joins_wait() -> None:
    world, _, (worker,) = running_cluster(1)
    joiner = world.launch(7)
    world.wait(31)
    world.hear(world.tag(joiner), world.report(joiner), world.tag(worker, present=False))
    assert world.standing(joiner) == ("ADD_QUEUED", "NO_JOB")
    assert world.mirror(worker) == "REMOVED"
    assert world.count("instances.terminate") == 1


def test_e4_when_the_job_is_over_every_elastic_node_is_released_and_base_nodes_stay() -> None:
    world, master, (worker,) = running_cluster(1)
    preparing = world.member(5)
    world.hear(world.hook_event(preparing, "launch", "t-1"))
    queued = world.launch(6)
    world.hear(world.tag(queued), world.report(queued))
    world.resync()
    world.hear(world.job_event(master, worker, revision=1, state="finished"))
    assert {world.status(node) for node in (worker, preparing, queued)} == {"REMOVED"}
    assert {call[1] for call in world.calls if call[0] == "groups.terminate"} == {preparing}
    assert {node for call in world.calls if call[0] == "instances.terminate" for node in call[1:]} == {worker, queued}
    assert world.target().members == (master,)
    assert world.target().finished


def test_an_unknown_instance_in_a_batch_does_not_keep_the_others_from_being_tagged() -> None:
    world, _, _ = running_cluster(0)
    known, unknown = world.launch(1), instance_id(99)
    tags = {ELASTIC_TAG.of("demo"): "", "dyntrain:cluster": "demo"}
    world.hear(
        world.tag(known),
        world.report(known),
        world.tag_event(unknown, 1, tags, [ELASTIC_TAG.of("demo")]),
        world.report(unknown),
    )
    assert world.mirror(known) == "ADD_QUEUED"


def test_a_throttled_status_tag_keeps_the_instance_from_being_terminated_before_it_says_removed() -> None:
    world, master, (worker,) = running_cluster(1)
    world.hear(world.tag(worker, present=False))
    world.failing["instances.tag"] = [RetryLater("Throttling")]
    with pytest.raises(RetryLater):
        world.hear(world.job_event(master, revision=world.target().revision))
    assert world.count("instances.terminate") == 0
    world.resync()
    assert world.mirror(worker) == "REMOVED"
    assert world.count("instances.terminate") == 1
