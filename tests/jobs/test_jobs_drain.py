"""A job is looked at until none of its machines lives and none can come up any more: until then each costs money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from dyntrain.controller.adapters.jobs import LIVE_JOBS_KEY, TableJobRecords
from dyntrain.controller.contract.errors import RetryLater
from dyntrain.controller.contract.job_files import SUCCEEDED, Exit
from dyntrain.controller.jobs.ports import StoredJob
from dyntrain.controller.jobs.record import ENDED, KEPT_SECONDS, JobRecord
from dyntrain.controller.jobs.verdict import DRAIN_SECONDS, GRACE_SECONDS, Machine, decide
from hypothesis import given
from hypothesis import strategies as st
from job_world import World, request

LIVING = ("pending", "running", "stopping", "stopped")  # of EC2's states, those that may run, or run again
STATES = (*LIVING, "shutting-down", "terminated")
T0 = 1_700_000_000.0


def record(**changes: Any) -> JobRecord:
    fields: dict[str, Any] = {"digest": "", "bucket": "b", "nodes": 2, "instance_type": "m5.large", "max_hours": 1.0}
    return JobRecord(**{**fields, "name": "mnist", "submission": "s", "since": T0, "changed": T0, **changes})


def machines(of: JobRecord, states: Sequence[str]) -> list[Machine]:
    return [Machine(f"i-{rank:08x}", rank, state, of.token) for rank, state in enumerate(states)]


@given(
    states=st.lists(st.sampled_from(STATES), max_size=3),
    age=st.sampled_from([0.0, GRACE_SECONDS, DRAIN_SECONDS, 30 * DRAIN_SECONDS]),
    off=st.sampled_from([-1.0, 0.0, 1.0]),
    state=st.sampled_from(ENDED),
)
def test_law_an_ended_job_is_over_when_nothing_lives_and_nothing_can_come_and_not_before(
    states: list[str], age: float, off: float, state: Any
) -> None:
    """`changed` is when it ended, which may be days after it began."""
    ended = record(state=state, since=T0 - 86_400.0)
    decision = decide(ended, machines(ended, states), None, {}, T0 + age + off)
    living = [machine.instance for machine in machines(ended, states) if machine.state in LIVING]
    assert decision.over == (not living and age + off > DRAIN_SECONDS)
    assert list(decision.terminate) == (living if age + off >= GRACE_SECONDS else [])
    assert decision.record == ended


@pytest.mark.parametrize("stuck", LIVING)
def test_a_machine_that_cannot_be_ended_for_hours_is_tried_at_each_look_until_it_can(stuck: str) -> None:
    world = World()
    world.submit()
    world.settles(Exit(SUCCEEDED, 0, 0, "all done", world.now))
    world.end(0)
    name = next(name for name, machine in world.machines.items() if machine.rank == 1)
    world.machines[name] = replace(world.machines[name], state=stuck)
    world.resync()
    for _ in range(5):
        world.failing["terminate"] = [RetryLater("throttled")]
        world.resync(DRAIN_SECONDS + 60.0)
        assert world.failing["terminate"] == [], "it was tried"
        assert len(world.live_jobs()) == 1
    world.resync()
    assert world.living() == []
    world.resync()
    assert len(world.live_jobs()) == 0, "and then there is nothing left to look at"


def test_what_ec2_refuses_to_end_keeps_the_job_in_sight_too() -> None:
    world = World()
    world.submit()
    world.settles(Exit(SUCCEEDED, 0, 0, "all done", world.now))
    world.resync()
    world.unknown = set(world.machines)
    for _ in range(3):
        world.resync(DRAIN_SECONDS + 60.0)
        assert len(world.live_jobs()) == 1
    world.unknown = set()
    world.resync()
    world.resync()
    assert (world.living(), len(world.live_jobs())) == ([], 0)


def test_a_machine_that_comes_up_after_its_job_has_ended_is_found() -> None:
    """RunInstances was answered late, or EC2 shows late what it launched."""
    world = World()
    world.submit()
    hidden, world.machines = world.machines, {}
    world.settles(Exit(SUCCEEDED, 0, 0, "all done", world.now))
    world.resync()
    world.resync(DRAIN_SECONDS - 120.0)
    world.machines = hidden
    world.resync(60.0)
    assert world.living() == []


def test_one_job_that_is_over_takes_no_other_out_of_sight() -> None:
    world = World()
    world.submit()
    world.submit(request(name="other"), fresh="ba9876543210")
    world.settles(Exit(SUCCEEDED, 0, 0, "all done", world.now))
    for name, machine in world.machines.items():
        if machine.token == world.record().token:
            world.machines[name] = replace(machine, state="terminated")
    world.resync()
    world.resync(DRAIN_SECONDS + 60.0)
    assert [stored.record.name for stored in world.live_jobs()] == ["other"]


class Written:
    """Clients whose DynamoDB keeps what is put."""

    def __init__(self) -> None:
        self.item: dict[str, Any] = {}

    def dynamodb(self) -> Any:
        return self

    def put_item(self, Item: dict[str, Any], **_request: Any) -> None:  # noqa: N803
        self.item = Item


@pytest.mark.parametrize("over", [False, True])
@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("state", ["LAUNCHING", "RUNNING", *ENDED])
def test_what_is_not_over_is_in_the_index_and_never_expires_and_what_is_is_kept_for_people(
    state: Any, elastic: bool, over: bool
) -> None:
    """An elastic job's record, which nobody looks at, is all by which `stop` finds its cluster while that lives."""
    clients: Any = Written()
    stored = StoredJob(record(state=state, elastic=elastic, since=T0 - 999.0), 3)
    TableJobRecords(clients, "t").put(stored, over=over)
    assert clients.item.get("cluster") == (None if over else {"S": LIVE_JOBS_KEY})
    expires = clients.item.get("expires")
    lives_on = not over or (elastic and state not in ENDED)
    assert expires == (None if lives_on else {"N": str(int(T0 + KEPT_SECONDS))})
