"""What a node makes of each word of its coordinator, without a process. What would break for a user: a node that serves
though it does not offer to, a script that is ended before it has saved its model, or results that are never uploaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from dyntrain.controller.contract.notices import NOTICE_SECONDS, RECOMMENDED, Rebalance
from dyntrain.node_bootstrap.instance.notices import Notice
from dyntrain.training.protocol.node_messages import (
    CoolDown,
    LaunchAnswer,
    Launched,
    Listed,
    NodeNotice,
    PsProcess,
    RestartWorker,
    Retire,
    StartGroup,
    StopGroup,
    Workers,
)
from dyntrain.training.protocol.results import END_SECONDS, SCRIPTS_SECONDS
from node_clock import lived, seconds
from node_supervisor_bed import LAUNCH, TIMING, Bed

START = StartGroup(generation=4, processes=(PsProcess(role="server", environment={}),))
FILE, FOLLOW, WELCOMED = ("file", "access"), ("set_job", "job-1"), ("isolation.on_welcome", "job-1")


def live(scenario: Coroutine[Any, Any, None]) -> None:
    lived(scenario)


@pytest.mark.parametrize(("tag", "begun"), [(False, False), (True, False), (False, True)])
def test_a_node_says_that_it_is_a_base_node_by_its_tag_now_or_at_its_start(tag: bool, begun: bool) -> None:
    async def scenario() -> None:
        hello = Bed("base", serves=begun, tag=tag).hello()
        assert (hello.base, hello.worker_pid, hello.attempt) == (tag or begun, 77, 3)
        assert Bed(tag=tag).hello().base is tag, "one that is never to be a base node"

    live(scenario())


@pytest.mark.parametrize("serves", [True, False])
def test_a_welcome_gives_the_worker_its_way_before_it_is_started(serves: bool) -> None:
    async def scenario() -> None:
        assert await Bed("base", serves=serves).on_welcome() == [FILE, FOLLOW, *[("tell", "offer")] * serves, WELCOMED]

    live(scenario())


def test_what_a_person_launched_is_run_and_no_running_script_is_cut_short_for_it() -> None:
    async def scenario() -> None:
        bed = Bed("base", serves=False, launches=True)
        runs = ("worker.runs", "program of one")
        assert await bed.on_welcome(launch=LAUNCH) == [FILE, runs, FOLLOW, WELCOMED]
        assert await bed.on_welcome(launch=LAUNCH) == [FILE, runs, FOLLOW, WELCOMED]
        assert (await bed.on_welcome("job-2", LAUNCH))[:3] == [FILE, ("group.forget_groups",), runs]

    live(scenario())


def test_where_nothing_is_launched_any_more_a_script_may_end_by_itself_first() -> None:
    async def scenario() -> None:
        bed = Bed(launches=True)
        finish = ("worker.wait_for_end", TIMING.finish_seconds)
        assert await bed.on_welcome() == [FILE, finish, ("worker.runs", None), FOLLOW, WELCOMED]
        assert await bed.on_message(Launched(launch=LAUNCH)) == [("worker.runs", "program of one"), WELCOMED]
        assert await Bed().on_message(Launched(launch=LAUNCH)) == [], "the cluster has its own command"

    live(scenario())


def test_a_launchs_end_is_not_the_nodes() -> None:
    async def scenario() -> None:
        bed = Bed("base", launches=True)
        await bed.on_welcome(launch=LAUNCH)
        assert await bed.on_message(Retire(reason="job finished")) == [
            ("worker.wait_for_end", TIMING.finish_seconds),
            ("worker.runs", None),
            ("worker.on_welcome", "job-1"),
            ("group.forget_groups",),
            ("hang_up",),
        ]
        assert not bed.retired
        other = Bed("base")
        assert await other.on_message(Retire(reason="job finished")) == []
        assert other.retired
        await other.on_message(Retire(reason="again"))
        assert await other.supervisor.until_retired() == "job finished", "the first one says why"

    live(scenario())


def test_every_order_does_what_it_says_on_a_node_that_it_is_for() -> None:
    async def scenario() -> None:
        bed = Bed("base", "desk")
        answer = LaunchAnswer(request="one", job="job-1")
        orders: list[tuple[Any, tuple[Any, ...]]] = [
            (START, ("group.start", START)),
            (StopGroup(generation=4), ("group.stop", 4)),
            (RestartWorker(pid=7, reason="killed"), ("worker.restart", 7, "killed")),
            (CoolDown(pid=7, seconds=9.0, given_up=True), ("worker.cool_down", 7, 9.0, True)),
            (Workers(addresses=("10.0.0.1", "10.0.0.2")), ("workers", ("10.0.0.1", "10.0.0.2"))),
            (answer, ("answered", answer)),
        ]
        for order, call in orders:
            assert await bed.on_message(order) == [call]
        for other in (Bed(), Bed("base", serves=False)):
            for order in (START, StopGroup(generation=4), answer):
                assert await other.on_message(order) == [], "it never offered to"
        bed.workers_error = OSError("no space left")
        assert await bed.on_message(Workers(addresses=())) == [], "for people; the node does without"

    live(scenario())


def test_a_node_knows_whether_the_target_lists_it() -> None:
    async def scenario() -> None:
        bed = Bed()
        for listed in (True, False, False, True):
            assert await bed.on_message(Listed(listed=listed)) == [("listed", listed)]
            assert bed.supervisor.unlisted.is_set() is not listed

    live(scenario())


def test_a_notice_goes_to_both_with_the_policys_deadline_for_the_job() -> None:
    async def scenario() -> None:
        for kind, policy, deadline in (
            ("terminate", Rebalance("ignore"), 1000.0),
            (RECOMMENDED, Rebalance("leave", 600.0), 1000.0 - NOTICE_SECONDS + 600.0),
            (RECOMMENDED, Rebalance("ignore"), None),
        ):
            bed = Bed("notices", rebalance=policy)
            bed.supervisor.on_notice(Notice(kind, 1000.0))
            message = ("tell", NodeNotice(kind=kind, deadline=deadline)) if deadline is not None else None
            assert bed.calls == ([message, ("report", "interrupted", kind, 1000.0)] if message else [])
            bed.known[kind] = Notice(kind, 1000.0)
            assert [call for call in await bed.on_welcome() if call[0] in ("tell", "report")] == (
                [message] if message else []
            )

    live(scenario())


def test_a_lost_connection_cuts_a_node_off_unless_it_has_hung_up_itself() -> None:
    async def scenario() -> None:
        bed = Bed("desk")
        bed.supervisor.on_disconnect()
        assert bed.calls == [("worker.on_disconnect",), ("isolation.on_disconnect",), ("desk.on_disconnect",)]
        await bed.on_message(Retire(reason="job finished"))
        bed.supervisor.on_disconnect()
        assert bed.calls == [("worker.on_disconnect",), ("desk.on_disconnect",)]

    live(scenario())


@pytest.mark.parametrize("leads", [True, False], ids=["the master", "another"])
@pytest.mark.parametrize("results", [True, False])
def test_a_retired_node_lets_its_script_end_first_and_the_master_waits_for_the_results(
    leads: bool, results: bool
) -> None:
    async def scenario() -> None:
        bed = Bed("base", results=results)
        bed.leads = leads
        began = seconds()
        await bed.supervisor.retire("job finished")
        bound = TIMING.coordinator_exit_seconds + (SCRIPTS_SECONDS + END_SECONDS if results else 0.0)
        assert seconds() - began == pytest.approx(bound if leads else 0.0)
        steps = [
            ("keeper.retire",),
            ("worker.wait_for_end", TIMING.finish_seconds),
            ("worker.stop", TIMING.retire_grace_seconds),
        ]
        assert bed.calls == [*steps, ("group.stop_all",), *[("leave",)] * (results and leads)]
        bed.finished.set()
        began = seconds()
        await bed.supervisor.retire("job finished")
        assert seconds() - began == 0.0, "it has ended by itself"

    live(scenario())


def test_the_coordinators_end_is_the_jobs_also_when_its_word_was_lost() -> None:
    async def scenario() -> None:
        bed = Bed("base")
        over = asyncio.create_task(bed.supervisor._retire_after_coordinator(bed.base))
        await asyncio.sleep(1.0)
        assert not bed.retired
        bed.finished.set()
        assert await bed.supervisor.until_retired() == "the coordinator finished"
        await over
        bed = Bed("base")
        bed.base.coordinator = None
        await bed.supervisor._retire_after_coordinator(bed.base)
        assert not bed.retired, "it runs elsewhere"

    live(scenario())
