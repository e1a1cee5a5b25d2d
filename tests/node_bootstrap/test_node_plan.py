"""What is left to do on a node: the laws of the plan, and that a real life follows it and prints it."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_coordinator import start_coordinator
from node_fakes import World, living, processes_of, wait_until, world

from node_bootstrap.marker import Verdict
from node_bootstrap.node import CONFIGURATION, TRY_AGAIN, print_plan, run_node
from node_bootstrap.plan import Observed, Reason, Step, done, plan

ORDER = list(Step)
NOT_YET = st.sampled_from([None, *(verdict for verdict in Verdict if verdict is not Verdict.COUNTS)])


def with_done(steps: set[Step], marker: Verdict | None = None) -> Observed:
    """A node on which exactly these steps are done; a marker that counts stands for both the script and itself."""
    return Observed(
        swept=Step.SWEEP in steps,
        identity=Step.IDENTITY in steps,
        config=Step.CONFIG in steps,
        volume=Step.VOLUME in steps,
        environment=Step.ENVIRONMENT in steps,
        package=Step.PACKAGE in steps,
        scripted=Step.PREPARE not in steps or Step.MARKER in steps,
        marker=Verdict.COUNTS if Step.MARKER in steps else marker,
        reported=Step.REPORT in steps,
        signalled=Step.SIGNAL in steps,
        retired=Step.SUPERVISE in steps,
    )


def left_of(seen: Observed) -> list[Step]:
    return [planned.step for planned in plan(seen)]


def test_nothing_is_left_when_every_step_is_done() -> None:
    assert plan(with_done(set(Step))) == ()


@given(st.integers(0, len(ORDER)), NOT_YET)
def test_a_life_that_was_cut_short_goes_on_with_the_rest_in_the_same_order(cut: int, marker: Verdict | None) -> None:
    assert left_of(with_done(set(ORDER[:cut]), marker)) == ORDER[cut:]


@given(st.sets(st.sampled_from(ORDER)), NOT_YET)
def test_whatever_is_done_is_not_done_again_and_whatever_is_not_is_in_the_plan(some: set[Step], marker: Verdict | None) -> None:
    """A script without its marker has to run again, and a marker stands for its script."""
    if Step.MARKER in some:
        some |= {Step.PREPARE}
    seen = with_done(some, marker)
    assert left_of(seen) == [step for step in ORDER if step not in some]
    assert set(done(plan(seen))) == some


@given(st.sets(st.sampled_from(ORDER)), NOT_YET)
def test_carrying_out_the_first_step_again_and_again_comes_to_an_end(some: set[Step], marker: Verdict | None) -> None:
    taken: list[Step] = []
    have = set(some) - {Step.PREPARE}
    while left := left_of(with_done(have, marker)):
        taken.append(left[0])
        have |= {Step.PREPARE, Step.MARKER} if left[0] in (Step.PREPARE, Step.MARKER) else {left[0]}
    assert len(taken) == len(set(taken))
    assert taken == sorted(taken, key=ORDER.index)


@given(st.sets(st.sampled_from(ORDER)), NOT_YET, st.booleans())
def test_a_node_that_cannot_be_prepared_says_so_and_trains_nothing(some: set[Step], marker: Verdict | None, scripted: bool) -> None:
    some -= {Step.MARKER, Step.REPORT, Step.SUPERVISE}
    seen = Observed(**{**vars(with_done(some, marker)), "failed": True, "scripted": scripted})
    reasons = {planned.step: planned.reason for planned in plan(seen)}
    assert not {Step.PREPARE, Step.MARKER, Step.SIGNAL} & set(reasons)
    assert (reasons[Step.REPORT], reasons[Step.SUPERVISE]) == (Reason.FAILURE, Reason.IN_SERVICE)


def test_reasons_say_what_was_seen() -> None:
    reasons = {planned.step: planned.reason for planned in plan(Observed(swept=True, identity=True, config=True, volume=False))}
    assert (reasons[Step.VOLUME], reasons[Step.ENVIRONMENT], reasons[Step.PREPARE]) == (Reason.UNMOUNTED, Reason.UNSEEN, Reason.UNSEEN)
    assert {planned.reason for planned in plan(Observed(marker=Verdict.OTHER_SCRIPT))} >= {Verdict.OTHER_SCRIPT, Reason.UNMARKED}


# ---- what the real life makes of it


def looks(here: World) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in here.layout.node_log.read_text().splitlines()]
    return [line for line in lines if line["message"] == "looked what is left to do"]


def test_a_start_logs_what_it_finds_done_and_what_is_left(tmp_path: Path) -> None:
    """After a reboot one wants to know what was kept, and why the rest was done again."""

    async def scenario() -> list[dict[str, object]]:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            here.configure(prepare_script=here.script("print('made the data')"))
            for lives in (1, 2, 3):
                if lives == 3:
                    here.layout.profile.unlink()
                    here.script("print('made other data')")
                async with living(here.setting()):
                    await wait_until(lambda lives=lives: len(here.workers_started()) == lives, "the worker is started")
            await coordinator.stop()
            return looks(here)

    first, second, third = asyncio.run(scenario())
    assert first["done"] == ["sweep", "identity", "config", "volume", "package"]
    assert first["left"] == {
        "environment": Reason.ENVIRONMENT.value,
        "prepare-data": Verdict.ABSENT.value,
        "marker": Reason.UNMARKED.value,
        "report": Reason.UNREPORTED.value,
        "signal": Reason.UNSIGNALLED.value,
        "supervise": Reason.IN_SERVICE.value,
    }
    assert list(second["left"]) == ["report", "signal", "supervise"]  # type: ignore[call-overload]
    assert list(third["left"]) == ["environment", "prepare-data", "marker", "report", "signal", "supervise"]  # type: ignore[call-overload]
    assert third["left"]["prepare-data"] == Verdict.OTHER_SCRIPT.value  # type: ignore[index]
    assert processes_of(tmp_path) == []


def test_the_plan_can_be_printed_and_printing_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """To see on a host why it is not further, without starting anything there."""

    def files(here: World) -> set[Path]:
        return set(here.directory.rglob("*"))

    with world(tmp_path) as here:
        here.configure(prepare_script=here.script("raise SystemExit(1)"))
        before = files(here)
        assert asyncio.run(print_plan(here.setting())) == 0
        assert files(here) == before
    printed = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert list(printed) == [step.value for step in Step]
    assert [name for name, said in printed.items() if said == "done"] == ["identity", "config", "volume", "package"]
    assert printed["prepare-data"] == f"left: {Verdict.ABSENT.value}"


def test_a_plan_that_cannot_be_read_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with world(tmp_path) as here:
        here.configure(mount="nowhere")
        assert asyncio.run(print_plan(here.setting())) == CONFIGURATION
        here.parameters.values.clear()
        assert asyncio.run(print_plan(here.setting())) == TRY_AGAIN
    assert ["field mount" in line for line in capsys.readouterr().err.splitlines()] == [True, False]


def test_a_step_that_changes_nothing_ends_the_life_after_bounded_tries(tmp_path: Path) -> None:
    """Without a bound, something that removes what the node writes would keep it busy for ever, unseen."""

    async def scenario() -> int:
        with world(tmp_path) as here:
            here.configure(volume="fs-0123456789abcdef0")
            fickle = itertools.cycle([False, False, True])  # looked at before, by the step before and after; never there in the end
            setting = here.setting()
            changed = type(setting)(**{**vars(setting), "systemctl": ("true",), "is_mount": lambda path: next(fickle)})
            code = await run_node(changed)
            assert "the step volume was carried out, and what it makes is not there" in here.logged()
            return code

    assert asyncio.run(scenario()) == TRY_AGAIN


def test_a_missing_package_needs_a_person_and_not_a_loop_of_crashing_processes(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        setting = here.setting()
        code = asyncio.run(run_node(type(setting)(**{**vars(setting), "packages": ("training", "no_such_package")})))
        logged = here.logged()
    assert code == CONFIGURATION
    assert "no_such_package is not installed for" in logged
