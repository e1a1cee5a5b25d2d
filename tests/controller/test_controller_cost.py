"""What a cluster and a job have cost, from what is written down as they run."""

from __future__ import annotations

import pytest
from dyntrain.controller.cli.answers.cost import Usage, bills_for, cluster_usage, job_usage, usage_data
from dyntrain.controller.cli.answers.query import snapshot, summary, with_price
from dyntrain.controller.cli.text.cost import bill_lines
from dyntrain.controller.cli.text.status import headline
from dyntrain.controller.contract.errors import Refused
from dyntrain.controller.contract.job_files import alive_key, plan_key, rank_exit_key, run_id
from dyntrain.controller.core.history.bill import LineItem, bill, spans_of
from dyntrain.controller.core.history.trail import Metered, StatusChanged
from dyntrain.controller.jobs.record import JobRecord
from dyntrain.controller.jobs.verdict import Machine
from dyntrain.controller.loops.ports import Batch, TrailEntry
from fakes import ELASTIC, START, World, instance_id, running_cluster

HOUR, DAY = 3600.0, 86_400.0
PRICES = {("c5.large", "on-demand"): 0.10, ("g5.xlarge", "spot"): 0.40}


def machine(world: World, instance: str, kind: str = "c5.large", market: str = "on-demand") -> str:
    world.machines[instance].type, world.machines[instance].market = kind, market
    return instance


def cluster() -> tuple[World, str, str]:
    """A master, and a Spot machine that came with it; the first resync has seen both."""
    world = World()
    master = machine(world, world.launch(1000, base=True, NodeType="Master"))
    spot = machine(world, world.launch(1), "g5.xlarge", "spot")
    world.wait(30)
    world.resync()
    return world, master, spot


def used(world: World, since: float = 0.0) -> Usage:
    usage = cluster_usage(world.ports, world.registry, "demo", ELASTIC, since)
    assert usage is not None
    return usage


def lines(usage: Usage, *, each: bool = False) -> list[LineItem]:
    ((_, costs),) = bills_for([usage], lambda kind, market: PRICES.get((kind, market)), per_instance=each)
    return list(costs.lines)


def test_each_role_and_option_is_counted_from_launch_to_end_and_told_once() -> None:
    world, master, spot = cluster()
    begun = world.now - 30
    for _ in range(3):
        world.wait(HOUR)
        world.resync()
    world.machines[spot].state = "terminated"
    world.hear(world.state_event(spot, "shutting-down"))
    world.wait(60)
    world.hear(world.state_event(spot, "terminated"))
    world.wait(HOUR)
    elapsed = world.now - begun
    assert [(line.role, line.type, line.market, line.instances, line.running) for line in lines(used(world))] == [
        ("master", "c5.large", "on-demand", 1, 1),
        ("elastic", "g5.xlarge", "spot", 1, 0),
    ]
    assert [line.hours for line in lines(used(world))] == pytest.approx([elapsed / HOUR, 3 + 30 / HOUR])
    assert [line.cost for line in lines(used(world))] == pytest.approx([elapsed / HOUR * 0.1, (3 + 30 / HOUR) * 0.4])
    assert [(one["instance"], one["state"]) for one in world.trail if one["kind"] == "machine"] == [
        (spot, "on"),
        (master, "on"),
        (spot, "off"),
    ]
    assert used(world).notes == ()


def test_an_event_that_comes_late_ends_a_machine_when_it_says_and_what_ended_before_is_not_listed() -> None:
    world, _, spot = cluster()
    world.wait(2 * HOUR)
    world.machines[spot].state = "terminated"
    world.hear(world.state_event(spot, "terminated", at=world.now - HOUR))
    assert [round(line.hours, 1) for line in lines(used(world)) if line.role == "elastic"] == [1.0]
    assert [line.role for line in lines(used(world, world.now - HOUR / 2))] == ["master"]


def test_machines_that_an_earlier_release_knew_are_counted_from_their_launch_once_they_are_read_anew() -> None:
    world, *_ = cluster()
    fresh = world.launch(2)
    launched = world.now
    world.resync()
    world.wait(HOUR)
    machine(world, fresh)
    world.resync()
    (span,) = [span for span in used(world).spans if span.instance == fresh]
    assert (span.began, span.ended, span.start_unknown) == (launched, None, False)


def test_a_machine_that_was_stopped_costs_nothing_until_it_is_started() -> None:
    world, master, _ = cluster()
    world.wait(HOUR)
    world.machines[master].state = "stopped"
    world.hear(world.state_event(master, "stopping"), world.state_event(master, "stopped"))
    world.wait(10 * HOUR)
    world.machines[master].state, world.machines[master].launched_at = "running", world.now
    world.hear(world.state_event(master, "pending"), world.state_event(master, "running"))
    world.wait(HOUR)
    world.resync()
    (line, _) = lines(used(world))
    assert (line.role, line.instances, line.running, round(line.hours, 1)) == ("master", 1, 1, 2.0)


def test_what_is_only_lent_costs_while_it_carries_the_tag() -> None:
    world = World()
    lent = machine(world, world.launch(1, owned=False, elastic=False))
    world.wait(HOUR)
    world.hear(world.tag(lent))
    world.resync()
    world.wait(2 * HOUR)
    world.hear(world.tag(lent, present=False))
    world.wait(5 * HOUR)
    world.resync()
    assert [(line.running, round(line.hours, 2)) for line in lines(used(world))] == [(0, 2.0)]


def test_who_takes_a_base_nodes_place_is_counted_as_what_it_was_at_the_time() -> None:
    world, _, spot = cluster()
    world.wait(HOUR)
    world.machines[spot].tags["dyntrain:base"] = "true"
    world.resync()
    world.wait(2 * HOUR)
    hours = {line.role: round(line.hours, 1) for line in lines(used(world))}
    assert hours == {"master": 3.0, "base": 2.0, "elastic": 1.0}


def test_a_machine_of_which_the_trail_begins_with_its_end_is_counted_from_there_and_said_to_be_cut() -> None:
    """Its beginning is no longer kept; the same for one that has run since before that, and runs."""
    world, master, spot = cluster()
    world.wait(40 * DAY)
    world.machines[spot].state = "terminated"
    world.hear(world.state_event(spot, "terminated"))
    world.entries = [one for one in world.entries if one[1].at > world.now - 30 * DAY]
    world.wait(DAY)
    usage = used(world)
    assert [(line.role, line.hours) for line in lines(usage)] == [("master", 720.0), ("elastic", 29 * 24.0)]
    (note,) = usage.notes
    assert "30 days" in note
    assert {master, spot} <= set(note.replace(",", "").split())
    assert [(line.role, line.hours) for line in lines(used(world, world.now - 2 * DAY))] == [
        ("master", 48.0),
        ("elastic", 24.0),
    ]
    assert used(world, world.now - 2 * DAY).notes == (), "who asks for two days is told of two days"


def test_what_ran_before_the_trail_told_of_machines_is_said_to_be_missing() -> None:
    world, *_ = cluster()
    trained, only_seen = instance_id(7), instance_id(8)
    world.entries += [
        ("demo", TrailEntry(world.now, StatusChanged(instance=trained, before="", after="ADDED TRAINING"))),
        ("demo", TrailEntry(world.now, StatusChanged(instance=only_seen, before="", after="REMOVED NEVER_ASKED"))),
    ]
    unread = world.launch(9)
    world.hear(world.state_event(unread, "running"), world.tag(unread))
    (note,) = used(world).notes
    assert trained in note
    assert unread in note, "no read has told its type yet"
    assert only_seen not in note


def test_functions_that_overlap_tell_the_same_twice_and_out_of_order() -> None:
    def metered(state: str, since: float, role: str = "elastic") -> Metered:
        fields = {"instance": "i-1", "state": state, "role": role, "type": "c5.large", "market": "spot"}
        return Metered.model_validate({**fields, "since": since})

    entries = [
        metered("on", 100.0),
        metered("off", 400.0),
        metered("on", 100.0),
        metered("off", 401.0),
        metered("on", 900.0),
        metered("on", 1000.0, "base"),
    ]
    rules = World().rules()
    spans = [(span.role, span.began, span.ended, span.start_unknown) for span in spans_of(entries, [], rules, 0.0)]
    expected = [("elastic", 100.0, 400.0, False), ("elastic", 900.0, 1000.0, False), ("base", 1000.0, None, False)]
    assert spans == expected
    assert [span.began for span in spans_of(entries, [], rules, 300.0)] == [300.0, 900.0, 1000.0], "what was asked for"
    assert [span.start_unknown for span in spans_of(entries[1:2] * 2, [], rules, 300.0)] == [True]


def test_hours_without_a_price_are_in_no_sum_of_money() -> None:
    world, *_ = cluster()
    world.wait(HOUR - 30)
    spans = used(world).spans
    half = bill(spans, {("g5.xlarge", "spot"): 0.4}, world.now)
    assert (half.hours, half.cost, half.unpriced, half.running, half.hourly) == (2.0, 0.4, 1.0, 2, None)
    none = bill(spans, {}, world.now)
    assert (none.cost, none.unpriced) == (None, 2.0)
    every = bill(spans, PRICES, world.now)
    assert (every.cost, every.hourly) == (0.5, 0.5)
    assert "$0.50; 2 run now, $0.50 an hour" in list(bill_lines("demo", 0.0, every, [], None, each=False))[-1]
    assert "1.00 hours of unknown price; 2 run now" in list(bill_lines("demo", 0.0, half, [], None, each=False))[-1]
    assert "pricing:GetProducts" in list(bill_lines("demo", 0.0, none, [], None, each=False))[-1]
    wide = "\n".join(bill_lines("demo", 0.0, bill(spans, PRICES, world.now, per_instance=True), [], None, each=True))
    assert instance_id(1) in wide


def test_a_cluster_that_is_registered_no_more_still_has_its_trail_and_an_unknown_one_has_none() -> None:
    world, *_ = cluster()
    world.parameters.clear()
    world.wait(HOUR)
    assert [line.role for line in lines(used(world))] == ["master", "elastic"]
    assert "not registered" in used(world).notes[0], "its machines' ends are heard by nobody"
    assert cluster_usage(world.ports, world.registry, "nope", ELASTIC, 0.0) is None


class Job:
    """A job's second attempt, of two ranks; what it left is as old as `written` says."""

    def __init__(self) -> None:
        fields = {"name": "mnist", "submission": "5ub", "digest": "d", "bucket": "b", "max_hours": 24.0}
        times = {"since": START + 5 * HOUR, "changed": START + 5 * HOUR}
        self.record = JobRecord.model_validate(
            {
                **fields,
                **times,
                "attempt": 2,
                "nodes": 2,
                "instance_type": "g5.xlarge",
                "spot": True,
                "state": "RUNNING",
            }
        )
        first, second = run_id("5ub", 1), run_id("5ub", 2)
        self.written = {
            1: {
                plan_key("mnist", first): START,
                alive_key("mnist", first, 0): START + HOUR,
                rank_exit_key("mnist", first, 0): START + HOUR + 60,
            },
            2: {plan_key("mnist", second): START + 5 * HOUR, alive_key("mnist", second, 0): START + 7 * HOUR},
        }
        token = self.record.token
        self.machines = [
            Machine("i-0", 0, "terminated", token, launched=START + 5 * HOUR + 36),
            Machine("i-1", 1, "running", token, launched=START + 5 * HOUR + 36),
        ]

    def write_times(self, record: JobRecord, attempt: int) -> dict[str, float]:
        if attempt not in self.written:
            raise Refused("AccessDenied", "s3:ListBucket")
        return self.written[attempt]

    def of_runs(self, tokens: object) -> list[Machine]:
        return self.machines

    def terminate(self, instances: object) -> Batch:
        raise AssertionError("a bill ends nothing")


def test_a_jobs_ranks_are_counted_over_all_attempts_by_what_they_left_and_what_ec2_shows() -> None:
    job = Job()
    usage = job_usage(job, job, job.record, START + 8 * HOUR)
    assert [(line.role, line.market, line.running, line.hours) for line in lines(usage)] == [
        ("rank 0", "spot", 0, pytest.approx(1 + 60 / HOUR + 2 - 36 / HOUR)),
        ("rank 1", "spot", 1, pytest.approx(3 - 36 / HOUR)),
    ]
    assert usage.start == START
    (note,) = usage.notes
    assert "1 of attempt 1" in note, "the rank that was never heard of is not passed over in silence"
    data = usage_data(usage, bill(usage.spans, PRICES, usage.now))
    assert (data["kind"], data["name"], data["cost"]) == ("job", "mnist", pytest.approx(data["hours"] * 0.4))


def test_a_bucket_that_may_not_be_read_and_a_launch_that_is_under_way_are_told_as_such() -> None:
    job = Job()
    job.written, job.machines = {}, []
    notes = job_usage(job, job, job.record, START + 8 * HOUR).notes
    assert sum("cannot be read" in note for note in notes) == 2
    launching = job.record.model_copy(update={"attempt": 1, "state": "LAUNCHING"})
    job.written = {1: {plan_key("mnist", run_id("5ub", 1)): START}}
    assert job_usage(job, job, launching, START + 1.0).notes == ()


def test_status_tells_what_runs_on_after_the_job_with_its_price_where_there_is_one() -> None:
    world, master, _ = running_cluster(0)
    second = machine(world, world.launch(1001, base=True))
    machine(world, master)
    world.resync()
    assert summary(snapshot(world.ports, world.registry, "demo", ELASTIC))["stays"] is None, "the job runs"
    world.hear(world.job_event(state="finished", revision=world.target().revision))
    cluster = summary(snapshot(world.ports, world.registry, "demo", ELASTIC))
    assert headline(cluster)[-1] == "  2 base instances run on, which costs money"
    assert headline(with_price(cluster, lambda kind, market: 0.085))[-1].endswith("which costs $0.17 an hour")
    assert with_price(cluster, lambda kind, market: None)["stays"]["hourly"] is None
    world.machines[second].state = "terminated"
    world.hear(world.state_event(second, "terminated"))
    assert "1 base instance runs on" in headline(summary(snapshot(world.ports, world.registry, "demo", ELASTIC)))[-1]
