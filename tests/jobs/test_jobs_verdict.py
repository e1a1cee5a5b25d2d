"""The resync's look at jobs: what it ends, when, and by which evidence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dyntrain.controller.contract.errors import RetryLater
from dyntrain.controller.contract.job_files import FAILED, INTERRUPTED, SUCCEEDED, Exit, exit_of
from dyntrain.controller.jobs.verdict import DRAIN_SECONDS, GRACE_SECONDS, OVERTIME_SECONDS, decide
from job_world import World, request


def running(**changes: object) -> World:
    world = World()
    world.submit(request(**changes))
    return world


def test_a_job_that_runs_is_left_alone() -> None:
    world = running()
    for _ in range(20):
        assert world.resync() == {"jobs": 1, "terminated": 0}
    assert (world.record().state, world.living()) == ("RUNNING", [0, 1])


def test_a_failed_job_ends_with_the_reason_of_the_rank_that_failed_first() -> None:
    world = running()
    world.settles(Exit(FAILED, 1, 3, "the command of rank 1 ended with exit code 3", world.now, "Traceback"))
    world.resync()
    assert (world.record().state, world.record().reason) == ("FAILED", "the command of rank 1 ended with exit code 3")


def test_a_machine_that_hangs_after_its_job_has_ended_is_ended_and_only_when_it_had_time_to_save() -> None:
    world = running()
    world.settles(Exit(FAILED, 0, 1, "rank 0", world.now))
    world.end(0)
    world.resync()
    world.resync(GRACE_SECONDS - 20.0)
    assert world.living() == [1]
    world.resync(30.0)
    assert world.living() == []


def test_a_job_over_its_hours_is_ended_when_its_nodes_did_not_do_it() -> None:
    world = running(max_hours=2.0)
    world.resync(2.0 * 3600.0 + OVERTIME_SECONDS - 10.0)
    assert world.living() == [0, 1]
    world.resync(20.0)
    assert (world.living(), world.record().state) == ([], "FAILED")
    assert "more than its 2 hours" in world.record().reason


def test_user_data_that_died_ends_the_job_for_the_others_after_a_while() -> None:
    """Its machine is gone, and has left no exit.json."""
    world = running()
    world.end(1)
    world.resync()
    assert (world.record().state, world.living()) == ("RUNNING", [0])
    world.resync(GRACE_SECONDS + 1.0)
    assert (world.living(), world.record().state) == ([], "FAILED")
    assert "rank 1 ended without an exit code" in world.record().reason


def test_a_rank_that_is_done_early_does_not_end_the_others() -> None:
    world = running()
    world.says(Exit(SUCCEEDED, 1, 0, "rank 1 ended", world.now))
    world.end(1)
    for _ in range(20):
        world.resync()
    assert (world.living(), world.record().state) == ([0], "RUNNING")
    world.says(Exit(SUCCEEDED, 0, 0, "rank 0 ended", world.now))
    world.end(0)
    world.resync()
    assert world.record().state == "SUCCEEDED", "also when the last word was lost"


def test_a_read_that_lags_behind_the_launch_is_no_loss() -> None:
    world = running()
    hidden, world.machines = world.machines, {}
    world.resync()
    world.machines = hidden
    world.resync()
    world.machines = {}
    world.resync(GRACE_SECONDS - 20.0)
    assert world.record().state == "RUNNING", "each loss has a grace of its own"


def test_a_spot_machine_that_was_taken_back_without_a_word_is_an_interruption() -> None:
    world = running(spot=True, retries=1)
    world.end(0, "Server.SpotInstanceTermination")
    world.resync()
    world.resync(GRACE_SECONDS + 1.0)
    assert (world.record().state, world.living()) == ("INTERRUPTED", [])


def test_an_interruption_is_told_of_the_rank_that_was_taken_back_not_of_another_that_is_silent() -> None:
    world = running(spot=True, retries=1)
    world.end(0)
    world.end(1, "Server.SpotInstanceTermination")
    world.resync()
    world.resync(GRACE_SECONDS + 1.0)
    assert world.record().reason == "EC2 took back the Spot instance of rank 1"


def test_only_what_carries_the_runs_client_token_is_ended_whatever_its_tags_say() -> None:
    world = running()
    name = "i-00000000000000bad"
    world.machines[name] = replace(next(iter(world.machines.values())), instance=name, token="somebody-elses")
    world.tags[name] = dict(next(iter(world.tags.values())))
    late = world.now + 1e6
    assert name not in decide(world.record(), list(world.machines.values()), None, {}, late).terminate
    world.resync(1e6)
    assert [machine.instance for machine in world.machines.values() if machine.living] == [name]


def test_what_cannot_be_ended_now_is_ended_at_a_later_look_and_keeps_no_other_job_from_being_looked_at() -> None:
    world = running()
    world.submit(request(name="other"), fresh="ba9876543210")
    world.failing["terminate"] = [RetryLater("throttled")]
    world.resync(1e6)
    assert sorted(world.record(name).state for name in ("mnist", "other")) == ["FAILED", "RUNNING"]
    world.resync()
    assert world.living() == []


def test_an_ended_job_is_looked_at_until_nothing_can_come_up_any_more() -> None:
    world = running()
    world.settles(Exit(INTERRUPTED, 0, None, "taken back", world.now))
    world.end(0), world.end(1)
    world.resync()
    assert world.resync(DRAIN_SECONDS - 10.0)["jobs"] == 1
    world.resync(20.0)
    assert world.resync()["jobs"] == 0
    assert world.record().state == "INTERRUPTED"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"verdict": "FINE", "rank": 0, "code": 0, "reason": "", "at": 1}',
        '{"verdict": "FAILED", "rank": Infinity, "code": 0, "reason": "", "at": 1}',
        '{"verdict": "FAILED", "rank": 0, "code": 1e999, "reason": "", "at": 1}',
        "[" * 100_000,
    ],
)
def test_an_exit_json_that_somebody_wrote_by_hand_is_no_verdict(text: str) -> None:
    with pytest.raises(ValueError, match=r"exit\.json|Expecting"):
        exit_of(text)
