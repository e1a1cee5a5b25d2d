"""`dyntrain status` and `explain` as people meet them, on a world in memory where that is enough, else as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dyntrain.controller.cli.answers.log_sources import SourceLine
from dyntrain.controller.cli.answers.query import cluster_of_instance, explanation, snapshot, summary
from dyntrain.controller.cli.commands.events import trail_line
from dyntrain.controller.cli.commands.logs import _print_lines
from dyntrain.controller.cli.commands.state import _explanation_text
from dyntrain.controller.cli.text.status import cluster_lines, headline, stragglers
from dyntrain.controller.cli.text.words import span
from dyntrain.controller.contract.errors import GiveUp
from dyntrain.controller.core.history.trail import StatusChanged
from dyntrain.controller.core.records.groups import GroupFacts, Hold
from dyntrain.controller.local.pace import patient
from dyntrain.controller.loops.ports import StoredGroup, TrailEntry
from dyntrain.controller.loops.resync import resync
from fakes import ELASTIC, World, running_cluster

ROOT = Path(__file__).parents[2]


def story() -> tuple[World, str, str]:
    world = World()
    master, failed = world.launch(1, base=True, NodeType="Master"), world.launch(2)
    world.hear(
        world.report(master),
        world.tag(failed),
        world.report(failed, "prepare_failed", reason="line one\nValueError: no data"),
    )
    world.wait(1)
    world.hear(world.job_event(master, revision=1, epoch=3, epochs=10, step=77, samples_per_second=123.0, generation=4))
    return world, master, failed


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS")}
    isolated = {
        **clean,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/nonexistent",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
    }
    command = [sys.executable, "-m", "dyntrain", *arguments]
    return subprocess.run(
        command,
        env={**isolated, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )


def test_no_command_loads_what_its_help_does_not_need() -> None:
    """Help and completion are to come at once: what talks to AWS, and the models, cost most of a second."""
    code = """if True:
        import sys
        from dyntrain.controller.cli.main import COMMANDS
        for name, command in COMMANDS.items():
            command.load()
            heavy = {"pydantic", "botocore", "numpy", "mxnet"} & set(sys.modules)
            assert not heavy, f"{name} loads {heavy}"
    """
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=patient(60), check=True)


def test_status_shows_nodes_with_rank_and_reason_and_the_job() -> None:
    world, master, failed = story()
    seen = summary(snapshot(world.ports, world.registry, "demo", ELASTIC))
    assert [(row["instance"], row["status"], row["rank"], row["generation"]) for row in seen["nodes"]] == [
        (master, "ADDED", 0, 4),
        (failed, "PREPARE_FAILED", None, None),
    ]
    assert (seen["job"]["epoch"], seen["job"]["step"], seen["job"]["workers"], seen["job"]["samples_per_second"]) == (
        3,
        77,
        1,
        123.0,
    )
    assert seen["nodes"][0]["since"] == world.now
    assert json.loads(json.dumps(seen)) == seen


def test_the_table_says_in_one_row_why_a_preparation_failed() -> None:
    world, _, failed = story()
    seen = summary(snapshot(world.ports, world.registry, "demo", ELASTIC))
    text = "\n".join(cluster_lines(seen, world.now, None))
    row = next(line for line in text.splitlines() if line.startswith(failed))
    assert "PREPARE_FAILED" in row
    assert "ValueError: no data" in row
    assert "epoch 3/10, step 77, 1 workers, 123 samples/s" in text


def test_a_rate_that_nobody_has_said_is_not_shown_as_none_at_all() -> None:
    world, master, _ = story()
    world.hear(world.job_event(master, revision=1, epoch=3, epochs=10, step=77, generation=4))
    shown = "\n".join(cluster_lines(summary(snapshot(world.ports, world.registry, "demo", ELASTIC)), world.now, None))
    assert "step 77, 1 workers, generation 4" in shown


def test_status_shows_why_a_job_failed_and_what_its_script_raised() -> None:
    world, master, _ = story()
    failure = {"reason": "the script fails at step 7 on every worker", "traceback": "Traceback:\nKeyError: [x]\n"}
    world.hear(world.job_event(master, revision=1, state="failed", generation=4, **failure))
    seen = summary(snapshot(world.ports, world.registry, "demo", ELASTIC))
    text = "\n".join(cluster_lines(seen, world.now, 80))
    raised, _, last = text.rpartition("\n")
    assert raised.endswith("the script raised:\nTraceback:\nKeyError: [x]")
    assert last.startswith("the job failed: the script fails at step 7 on every worker; its log: `dyntrain logs demo`")


def test_what_a_script_says_cannot_command_the_terminal() -> None:
    world, master, _ = story()
    failure = {"reason": "x\x1b[2J\x07", "traceback": "Traceback:\n\x1b]0;title\x07KeyError\n"}
    world.hear(world.job_event(master, revision=1, state="failed", generation=4, **failure))
    world.hear(world.report(world.launch(3), "prepare_failed", reason="\x1b[31mred"))
    lines = cluster_lines(summary(snapshot(world.ports, world.registry, "demo", ELASTIC)), world.now, 200)
    assert not [line for line in lines if not line.isprintable()]
    assert any("KeyError" in line for line in lines)


def test_neither_a_trail_nor_an_explanation_nor_a_log_can_command_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world, *_ = story()
    hostile = "\x1b]0;owned\x07\x1b[2J"
    node = world.launch(3, NodeType=hostile)
    world.hear(world.tag(node), world.report(node, "prepare_failed", reason=hostile))
    explained = _explanation_text(explanation(snapshot(world.ports, world.registry, "demo", ELASTIC), node))
    changed = StatusChanged(instance=node, before=hostile, after="ADDED", detail=hostile)
    trail = trail_line("demo", TrailEntry(1.0, changed))
    _print_lines([SourceLine("i-1 worker", f"loss\t{hostile}")])
    for text in (explained, trail, capsys.readouterr().out):
        assert "owned" in text
        assert not [line for line in text.splitlines() if not line.isprintable()]


def test_explain_gives_the_facts_behind_a_status() -> None:
    world, _, failed = story()
    answer = explanation(
        snapshot(world.ports, world.registry, cluster_of_instance(world.ports, world.registry, failed), ELASTIC), failed
    )
    assert answer["facts"]["preparation"]["reason"] == "line one\nValueError: no data"
    assert (answer["status"], answer["effective"]["wanted"]) == ("PREPARE_FAILED", True)
    assert "reason: PREPARE_FAILED" in _explanation_text(answer)


def test_a_base_node_is_not_told_to_take_a_tag_away_that_it_does_not_have() -> None:
    world, master, (worker,) = running_cluster()
    seen = snapshot(world.ports, world.registry, "demo", ELASTIC)
    answers = {instance: explanation(seen, instance) for instance in (master, worker)}
    assert [answers[instance]["reason"] for instance in answers] == ["TRAINING", "TRAINING"]
    assert "elastic tag" in answers[worker]["would_change"]
    assert "tag" not in answers[master]["would_change"].removesuffix("no tag asks a base node to leave")
    assert "dyntrain base replace" in answers[master]["would_change"]


def test_an_unknown_cluster_and_an_unknown_instance_are_one_clear_line() -> None:
    world, _, _ = story()
    with pytest.raises(GiveUp, match=r"no cluster 'nope' is registered \(known: demo\)"):
        snapshot(world.ports, world.registry, "nope", ELASTIC)
    with pytest.raises(GiveUp, match="the controller does not know i-00000000"):
        cluster_of_instance(world.ports, world.registry, "i-00000000")
    assert "nope" not in world.registry.all()


def test_status_says_that_a_group_launches_no_more_with_the_last_line_and_how_to_go_on() -> None:
    world, _, _ = story()
    reason = "prepare-data failed 3 times; the last: exit code 2; its last output:\nno such bucket"
    hold = Hold(at=world.now, held=True, script="", times=3, reason=reason, done=True)
    world.ports.group_records.put(StoredGroup(GroupFacts(group="demo-workers", hold=hold), 0), wake=False)
    cluster = summary(snapshot(world.ports, world.registry, "demo", ELASTIC))
    lines = cluster_lines(cluster, None, None)
    notice = next(line for line in lines if "launches no more" in line)
    assert notice == "  demo-workers launches no more: 3 nodes in a row failed alike: no such bucket"
    assert any(
        "resume-processes --auto-scaling-group-name demo-workers --scaling-processes Launch" in one for one in lines
    )


def test_an_invalid_policy_is_named_when_its_cluster_is_asked_for() -> None:
    world = World()
    world.parameters["/dyntrain/bad/policy"] = '{"cluster": "bad", "min_workers": 0}'
    with pytest.raises(GiveUp, match="min_workers"):
        snapshot(world.ports, world.registry, "bad", ELASTIC)
    assert "bad" in world.registry.problems()


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "no AWS region"),
        ({"AWS_DEFAULT_REGION": "eu-central-1"}, "no AWS credentials"),
        (
            {
                "AWS_DEFAULT_REGION": "eu-central-1",
                "AWS_ACCESS_KEY_ID": "x",
                "AWS_SECRET_ACCESS_KEY": "x",
                "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            },
            "Could not connect",
        ),
        ({"DYNTRAIN_TABLE": ""}, "DYNTRAIN_TABLE is empty"),
    ],
)
def test_what_is_missing_in_the_environment_is_one_line_and_not_success(
    environment: dict[str, str], message: str
) -> None:
    done = run("status", **environment)
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("explain", "nonsense"), "'nonsense' is no instance id"),
        (("events", "--instance", "nonsense"), "'nonsense' is no instance id"),
        (("logs", "demo", "--instance", "nonsense"), "'nonsense' is no instance id"),
        (("events", "--since", "soon"), "--since 'soon' is neither a span"),
        (("events", "--since", "2026-13-45"), "--since '2026-13-45' is neither a span"),
        (("pool", "plan", "--from-file", "/"), "/ cannot be read: Is a directory"),
        (("status",), "Invalid endpoint: not a url; check region, profile and AWS_ENDPOINT_URL"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_asked_of_aws(arguments: tuple[str, ...], message: str) -> None:
    environment = {
        "AWS_DEFAULT_REGION": "eu-west-3",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_ENDPOINT_URL": "not a url",
    }
    done = run(*arguments, **environment)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (1, 1), done.stderr
    assert message in done.stderr


def test_a_narrow_terminal_gets_fewer_columns_and_no_id_or_status_is_ever_cut() -> None:
    world, master, failed = story()
    seen = summary(snapshot(world.ports, world.registry, "demo", ELASTIC))
    columns = set()
    for width in range(1, 200):
        lines = cluster_lines(seen, world.now + 90, width)
        table = "\n".join(lines)
        for word in (master, failed, "ADDED", "PREPARE_FAILED"):
            assert word in table, f"{word} at {width} columns"
        header = next(line for line in lines if line.startswith("instance"))
        columns.add(len(header.split()))
        if width >= 40:
            assert all(len(line) <= width for line in lines[2:]), f"at {width} columns"
    assert columns == {2, 3, 4, 5, 6, 7}
    assert "1 min 30 s ago" in "\n".join(cluster_lines(seen, world.now + 90, None))


def test_the_headline_says_that_nobody_has_to_prove_who_it_is() -> None:
    world, _, _ = running_cluster(1)
    cluster = summary(snapshot(world.ports, world.registry, "demo", ELASTIC))
    assert headline({**cluster, "unverified": ""}) == headline(cluster)
    (warning,) = set(headline({**cluster, "unverified": "it was set so"})) - set(headline(cluster))
    assert warning.strip() == "identities are unverified, it was set so: `dyntrain doctor` says what that means"


def test_the_headline_says_what_is_done_what_is_left_and_the_loss() -> None:
    world, master, _ = story()
    progress = {"fraction": 0.37, "eta_seconds": 754.0, "metrics": {"accuracy": 0.9, "loss": None}, "metrics_epoch": 2}
    progress["silenced"] = {"DT302": "train.py:31"}
    world.hear(world.job_event(master, revision=1, epoch=3, epochs=10, progress=progress))
    text = "\n".join(headline(summary(snapshot(world.ports, world.registry, "demo", ELASTIC))))
    assert "running, 37.0 % done, about 12 min left" in text
    assert "accuracy 0.9, loss NaN (epoch 2)" in text
    assert "checks of the script that are silenced: DT302 (train.py:31)" in text


def test_who_keeps_the_others_waiting_is_in_the_headline_of_a_job_that_is_alive() -> None:
    world, master, _ = story()
    stalled = f"1 of 2 workers wait for the sums of step 9: {master} is in its script"
    world.hear(world.job_event(master, revision=1, epoch=3, epochs=10, progress={"stalled": stalled}))
    seen = summary(snapshot(world.ports, world.registry, "demo", ELASTIC))
    assert f"  stalled: {stalled}" in headline(seen), "the page shows the headline, too"
    assert not any("stalled" in line for line in headline({**seen, "job": {**seen["job"], "alive": False}}))


def test_a_straggler_is_named_with_how_much_slower_it_is_than_the_median() -> None:
    assert stragglers({"a": 0.10, "b": 0.11, "c": 0.29, "d": None}) == [("c", 0.29, pytest.approx(0.29 / 0.11))]
    assert stragglers({"a": 0.10, "b": 0.14}) == []
    assert [who for who, _, _ in stragglers({"a": 0.10, "b": 0.16})] == ["b"], "of two, against the faster one"
    assert stragglers({"a": 9.0}) == []
    assert stragglers({"a": 0.019, "b": 0.054}) == [], "steps of milliseconds differ by whose turn it is"
    world, master, _ = story()
    second = world.launch(3)
    world.hear(world.tag(second), world.report(second))
    report = world.job_event(master, second, revision=1)
    for member, seconds in zip(report["detail"]["members"], (0.1, 0.25), strict=True):
        member["step_seconds"] = seconds
    world.hear(report)
    text = "\n".join(headline(summary(snapshot(world.ports, world.registry, "demo", ELASTIC))))
    assert f"slow: {second} takes 0.25 s for its own part of a step, 2.5 times the median" in text


def test_the_headline_says_what_the_coordinator_cannot_reach_and_since_when() -> None:
    world, master, _ = story()
    lacking = {"what": "its target", "since": world.now - 90, "reason": "Unable to locate credentials"}
    world.hear(world.job_event(master, revision=1, unreachable=[lacking]))
    seen = summary(snapshot(world.ports, world.registry, "demo", ELASTIC))
    sentence = "the coordinator cannot reach its target, for 1 min 30 s: Unable to locate credentials"
    assert sentence in "\n".join(headline(seen, world.now))
    assert seen["job"]["unreachable"] == [lacking]


def test_colour_has_a_meaning_and_none_is_in_a_file() -> None:
    world, _, failed = story()
    seen = summary(snapshot(world.ports, world.registry, "demo", ELASTIC))
    plain, coloured = (cluster_lines(seen, world.now, 120, colour=colour) for colour in (False, True))
    assert not any("\x1b" in line for line in plain)
    row = next(line for line in coloured if failed in line)
    assert "\x1b[1;31m" in row, "what failed is red, and says so in words"
    assert "PREPARE_FAILED" in row


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.6, "1 min"), (754, "12 min"), (185, "3 min 5 s"), (7500, "2 h 5 min")]
)
def test_spans_are_told_in_the_units_that_matter(seconds: float, text: str) -> None:
    assert span(seconds) == text


def shown(world: World, node: str) -> tuple[str, str, str]:
    cluster = summary(snapshot(world.ports, world.registry, "demo", ELASTIC), gone=True)
    row = next(row for row in cluster["nodes"] if row["instance"] == node)
    explained = explanation(snapshot(world.ports, world.registry, "demo", ELASTIC), node)
    assert (explained["status"], explained["reason"]) == (row["status"], row["reason"]), "explain says the same"
    return row["status"], row["reason"], row["detail"]


def test_a_status_is_what_people_were_told_until_they_are_told_otherwise() -> None:
    """As the tag has it: else the one goes ahead of the other, and back where a look is older than a pass."""
    world, _, (worker,) = running_cluster(1)
    world.take_in(world.tag(worker, present=False))
    detail = "not announced yet: it trains on until the next boundary, then leaves"
    assert shown(world, worker) == (world.mirror(worker), "TRAINING", detail)
    world.settle()
    assert shown(world, worker) == (world.mirror(worker), "LEAVES_AT_BOUNDARY", "")
    world.hear(world.state_event(worker, "terminated"))
    assert shown(world, worker)[0] == "GONE"


def test_of_an_instance_of_which_nothing_was_told_yet_nothing_is_said_ahead() -> None:
    world, _, _ = running_cluster(0)
    node = world.launch(7)
    world.take_in(world.tag(node), world.report(node))
    assert shown(world, node)[:2] == ("WAITING", "NOT_LOOKED_AT")
    world.settle()
    assert shown(world, node)[0] == world.mirror(node) == "ADD_QUEUED"


def test_a_table_that_was_lost_shows_what_the_tags_say() -> None:
    world, _, (worker,) = running_cluster(1)
    world.table.clear()
    world.stream.clear()
    resync(world.ports, world.registry, ELASTIC)
    assert shown(world, worker)[0] == world.mirror(worker) == "ADDED"


def test_a_later_look_is_not_older_though_the_index_lags() -> None:
    world, _, (worker,) = running_cluster(1)
    old = world.ports.nodes.get(worker)
    world.wait(1)
    world.hear(world.tag(worker, present=False))
    assert shown(world, worker)[0] == "REMOVAL_QUEUED"
    world.ports.nodes.lagging[worker] = old  # type: ignore[attr-defined]
    assert shown(world, worker)[0] == "REMOVAL_QUEUED"


def test_explain_says_which_read_a_late_event_does_not_overrule() -> None:
    """The read showed that the tag was gone, people were told, and then came the event of before."""
    world = World()
    node = world.launch(7)
    world.resync()
    world.wait(20)
    tagged = world.tag(node)
    world.wait(1)
    world.tag(node, present=False)
    world.resync()
    world.wait(1)
    assert world.mirror(node) == "REMOVED"
    world.hear(tagged)
    assert (world.mirror(node), shown(world, node)[0]) == ("REMOVED", "REMOVED")
    answer = explanation(snapshot(world.ports, world.registry, "demo", ELASTIC), node)
    assert answer["passed_over"] == ["tags_event: a later read counts"]
