"""Why the workers of a job change: what would break for a user is a report that says "the target wants other members"
where somebody untagged an instance, or AWS took one.
"""

from __future__ import annotations

import pytest
from dyntrain.controller.contract.messages import Target
from dyntrain.controller.core.views.target import MAX_CAUSES, PARAMETER_BYTES, as_parameter
from fakes import instance_id, running_cluster


def test_who_joins_was_launched_by_its_group_by_hand_or_tagged() -> None:
    world, _master, _ = running_cluster(elastic=0)
    launched = world.launch(1)
    world.resync()
    world.hear(world.report(launched))
    assert world.target().causes == {launched: "launched"}, "from the cluster's launch template"
    hand = world.launch(2, owned=False)
    world.hear(world.tag(hand), world.report(hand))
    assert world.target().causes == {hand: "tagged"}
    member = world.member(3, phase="in_service")
    world.resync()
    world.hear(world.report(member))
    assert world.target().causes == {member: "launched by demo-workers"}


@pytest.mark.parametrize(
    ("happens", "cause"),
    [
        ("untagged", "untagged"),
        ("interrupted", "interrupted by AWS"),
        ("ended", "ended by its group"),
        ("stopped", "stopped"),
        ("failed", "its worker failed again and again"),
    ],
)
def test_who_leaves_was_asked_to_taken_away_or_has_failed(happens: str, cause: str) -> None:
    world, master, (worker,) = running_cluster()
    spot = {"instance-id": worker, "instance-action": "terminate"}
    match happens:
        case "untagged":
            world.hear(world.tag(worker, present=False))
        case "interrupted":
            world.hear(world.event("aws.ec2", "EC2 Spot Instance Interruption Warning", spot))
        case "ended":
            world.hear(world.hook_event(worker, "terminate", "token"))
        case "stopped":
            world.machines[worker].state = "stopping"
            world.hear(world.state_event(worker, "stopping"))
        case _:
            world.hear(world.report(worker, "worker_failed", reason="exit code 1"))
    assert world.target().members == (master,)
    assert world.target().causes == {worker: cause}


def test_at_the_jobs_end_nobody_is_said_to_be_above_the_maximum() -> None:
    world, master, (worker,) = running_cluster()
    world.wait(1)
    world.hear(world.job_event(master, worker, state="finished"))
    assert worker not in (world.target().members or ())
    assert world.target().causes == {}


def test_a_target_of_many_says_of_some_and_never_outgrows_its_parameter_for_that() -> None:
    world, _master, _ = running_cluster(elastic=0, max_workers=200)
    news = []
    for number in range(1, 60):
        worker = world.launch(number, owned=False)
        news += [world.tag(worker), world.report(worker)]
    world.hear(*news)
    assert len(world.target().causes) <= MAX_CAUSES
    members = tuple(instance_id(number) for number in range(170))
    full = Target.of(1, members).model_copy(
        update={"causes": dict.fromkeys(members[:MAX_CAUSES], "launched by " + "x" * 60)}
    )
    written = as_parameter(full, "item")
    assert len(written) <= PARAMETER_BYTES
    read = Target.model_validate_json(written)
    assert (read.members, read.causes) == (members, {}), "the members count, what is said of them gives way"
