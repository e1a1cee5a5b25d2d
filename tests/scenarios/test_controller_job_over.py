"""A job that is over, finished or failed: what people are told of it and of its nodes, that nothing is launched that
would be ended at once, and how it begins again.
"""

from __future__ import annotations

import pytest
from dyntrain.controller.cli.answers.connection import Connection
from dyntrain.controller.cli.answers.query import explanation, snapshot, summary
from dyntrain.controller.cli.changing.asking import (
    carry_out_unless_dry_run,
    launch_request,
    removal_request,
    restart_request,
    scaling_request,
    tagging_request,
)
from dyntrain.controller.cli.changing.restarts import CLOSING_SECONDS
from dyntrain.controller.cli.text.status import cluster_lines
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.contract.reports import JobReport
from dyntrain.controller.core.views.reasons import Reason
from fakes import ELASTIC, Member, World, running_cluster

GROUP = "demo-workers"
AGAIN = "`dyntrain cluster restart demo` starts the job again"
TRACEBACK = "Traceback (most recent call last):\n  File \"train.py\", line 3\nKeyError: 'label'"
FAILURE = f"no worker could start, on any node; the last time on i-0000000a: exit code 1; its last output:\n{TRACEBACK}"
BRIEF = f"{FAILURE.splitlines()[0]} KeyError: 'label'"


def over(world: World, master: str, state: str = "finished", closed: bool = True, **more: object) -> None:
    revision = world.target().revision
    world.hear(world.job_event(state=state, revision=revision, instance_id=master, closed=closed, **more))


def job_over(state: str = "finished", **more: object) -> tuple[World, str, str]:
    """With the one elastic worker, which is gone."""
    world, master, (worker,) = running_cluster()
    world.limits[GROUP] = (0, 4, 0)
    world.membership[master] = Member("demo-master", "in_service")
    over(world, master, state, **more)
    world.hear(world.state_event(worker, "shutting-down"), world.state_event(worker, "terminated"))
    world.calls.clear()
    return world, master, worker


def asking(world: World) -> Connection:
    return Connection(world.ports, world.registry, ELASTIC)


def shown(world: World) -> list[str]:
    return cluster_lines(summary(snapshot(world.ports, world.registry, "demo", ELASTIC)), None, None)


@pytest.mark.parametrize(
    ("state", "how"), [("finished", "is over: "), ("failed", "is over (it failed: out of data): ")]
)
def test_nothing_is_launched_into_a_job_that_is_over_and_the_way_on_is_told(state: str, how: str) -> None:
    """It was launched, billed and ended within a minute, REMOVED JOB_OVER; the command had said that all was well."""
    world, _, _ = job_over(state, reason="out of data" if state == "failed" else "")
    spare = world.launch(7, elastic=False, owned=False)
    for ask in (
        lambda: launch_request(asking(world), "demo", 1, None),
        lambda: scaling_request(asking(world), "demo", 2, None),
        lambda: tagging_request(asking(world), "demo", [spare]),
    ):
        with pytest.raises(GiveUp) as refused:
            ask()
        assert str(refused.value) == f"the job of demo {how}{AGAIN}"
    assert not [call for call in world.calls if call[0] in ("groups.set_desired", "instances.tag")]


def test_fewer_can_be_had_of_a_job_that_is_over() -> None:
    world, _, _ = job_over()
    world.limits[GROUP] = (0, 4, 2)
    assert scaling_request(asking(world), "demo", 0, None).new_size == 0
    assert scaling_request(asking(world), "demo", 2, None).new_size == 2


def test_a_job_that_runs_grows_as_ever() -> None:
    world, _, (worker,) = running_cluster()
    world.limits[GROUP] = (0, 4, 0)
    assert launch_request(asking(world), "demo", 1, None).new_size == 1
    assert removal_request(asking(world), [worker]).instances == (worker,)
    with pytest.raises(GiveUp, match="the job of demo cannot be restarted, since it is not over"):
        restart_request(asking(world), "demo")


def test_the_job_begins_again_when_its_base_nodes_boot_anew() -> None:
    """They have retired, and ask nobody any more."""
    world, master, _ = job_over()
    second = world.launch(1001, base=True)
    world.machines[second].state = "stopped"
    world.resync()
    request = restart_request(asking(world), "demo")
    assert (request.to_reboot, request.to_start) == ((master,), (second,))
    output = carry_out_unless_dry_run(world.ports, request, dry_run=True, say_where=print)
    assert f"aws ec2 reboot-instances --instance-ids {master} && aws ec2 start-instances" in output
    assert not [call for call in world.calls if call[0] in ("instances.reboot", "instances.start")]
    carry_out_unless_dry_run(world.ports, request, dry_run=False, say_where=print)
    done = [call for call in world.calls if call[0] in ("instances.reboot", "instances.start")]
    assert done == [("instances.reboot", master), ("instances.start", second)]


def test_a_job_whose_last_word_is_not_said_is_not_begun_again_before_it_is() -> None:
    """A coordinator that started now would find a job that is not closed, say once more that it is over, and end."""
    world, master, _ = job_over(closed=False)
    with pytest.raises(GiveUp, match="has just ended"):
        restart_request(asking(world), "demo")
    world.wait(CLOSING_SECONDS)
    assert restart_request(asking(world), "demo").to_reboot == (master,), "its coordinator may have died over it"
    world, master, _ = job_over(closed=False)
    over(world, master)
    assert restart_request(asking(world), "demo").to_reboot == (master,)


def test_while_the_next_job_begins_nobody_is_sent_to_begin_it_again() -> None:
    world, master, _ = job_over()
    world.wait(30)
    world.hear(world.report(master, attempt=2))
    with pytest.raises(GiveUp, match="the base nodes start another job; try again in a minute"):
        launch_request(asking(world), "demo", 1, None)
    world.hear(world.job_event(master, job="job-2", started_at=world.now, revision=world.target().revision))
    assert launch_request(asking(world), "demo", 1, None).new_size == 1


def test_without_base_nodes_nobody_can_begin_and_what_is_on_its_way_down_is_waited_for() -> None:
    world, master, _ = job_over()
    world.hear(world.state_event(master, "stopping"))
    with pytest.raises(GiveUp, match=f"base nodes of demo are still stopping: {master}"):
        restart_request(asking(world), "demo")
    world.hear(world.state_event(master, "shutting-down"), world.state_event(master, "terminated"))
    for ask in (lambda: restart_request(asking(world), "demo"), lambda: launch_request(asking(world), "demo", 1, None)):
        with pytest.raises(
            GiveUp, match="is over: no base node is left to start the job again; restore the desired capacity"
        ):
            ask()


def test_the_nodes_of_a_failed_job_say_that_it_failed_and_why() -> None:
    """They said that no coordinator had been heard of, as if one might be on its way."""
    world, master, _ = job_over("failed", reason=FAILURE)
    assert world.standing(master) == ("ADD_QUEUED", "JOB_FAILED")
    row = next(line for line in shown(world) if line.startswith(master))
    assert "this one failed: no worker could start" in row
    assert row.endswith("KeyError: 'label'")
    own = world.launch(8, owned=False)
    world.hear(world.tag(own), world.report(own))
    standing = next(node.standing for node in world.decision().nodes if node.view.instance == own)
    assert (standing.reason, standing.detail) == (Reason.JOB_OVER, f"the job failed: {BRIEF}")


def test_the_nodes_of_a_job_that_has_finished_say_so() -> None:
    world, master, _ = job_over()
    assert world.standing(master) == ("ADD_QUEUED", "JOB_FINISHED")
    assert "coordinator has been heard of" not in "\n".join(shown(world))


def test_the_last_line_of_a_failed_job_is_its_reason_and_its_log() -> None:
    world, _, _ = job_over("failed", reason=FAILURE)
    *before, last = shown(world)
    log = "its log: `dyntrain logs demo`, on i-0000000a /var/log/dyntrain/worker.log"
    assert last == f"the job failed: {BRIEF}; {log}"
    assert before[-4:] == ["its script's last output:", *TRACEBACK.splitlines()]


def test_a_traceback_that_was_told_comes_before_the_reason_and_only_once() -> None:
    world, master, _ = job_over("failed", reason="the script fails at step 7: KeyError: 'label'", traceback=TRACEBACK)
    lines = shown(world)
    assert lines[-5:-1] == ["the script raised:", *TRACEBACK.splitlines()]
    assert lines[-1].startswith("the job failed: the script fails at step 7: KeyError: 'label'; its log: ")
    assert lines[-1].endswith(f"on {master} /var/log/dyntrain/worker.log"), (
        "of the coordinator's node, where none is named"
    )


def test_what_was_ended_with_the_job_does_not_vanish_without_a_word() -> None:
    world, _, worker = job_over()
    assert f"  1 elastic instance was ended with the job: {worker} (--gone lists them)" in shown(world)
    assert "  `dyntrain cluster restart demo` begins the job again" in shown(world)


def test_what_was_ended_before_is_not_said_to_have_been_ended_with_it() -> None:
    world, master, (early, _) = running_cluster(2)
    world.hear(world.tag(early, present=False))
    world.hear(world.job_event(master, revision=world.target().revision))
    world.hear(world.state_event(early, "terminated"))
    world.wait(60)
    over(world, master)
    assert early not in "\n".join(line for line in shown(world) if "ended with" in line)


@pytest.mark.parametrize("gone", [False, True])
def test_explain_advises_no_launch_where_the_job_is_over(gone: bool) -> None:
    world, master, (worker,) = running_cluster()
    over(world, master)
    if gone:
        world.hear(world.state_event(worker, "terminated"))
    answer = explanation(snapshot(world.ports, world.registry, "demo", ELASTIC), worker)
    assert "launch" not in answer["sentence"] + answer["would_change"]
    assert "`dyntrain cluster restart demo` begins the job again" in answer["would_change"]


def test_explain_advises_to_launch_another_where_the_job_runs() -> None:
    world, master, (worker,) = running_cluster()
    world.hear(world.tag(worker, present=False))
    world.hear(world.job_event(master, revision=world.target().revision))
    answer = explanation(snapshot(world.ports, world.registry, "demo", ELASTIC), worker)
    assert (answer["reason"], answer["would_change"]) == ("TERMINATE_ISSUED", "nothing; launch another instance")


def test_a_report_of_an_earlier_release_says_nothing_of_a_last_word() -> None:
    world, master, _ = running_cluster()
    report = world.job_event(state="finished", instance_id=master)["detail"]
    del report["closed"]
    assert JobReport.model_validate(report).closed is False
