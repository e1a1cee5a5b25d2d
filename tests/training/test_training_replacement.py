"""Whole jobs on real MXNet of which nothing stays: every worker replaced, all killed at once, servers killed. What was
learned stays.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training.ledger import read_lines
from job_bed import JobBed, instance

pytestmark = pytest.mark.jobs

Make = Callable[..., JobBed]
TINY = str(Path(__file__).parent / "tiny_job.py")


def test_t5_t15_after_every_worker_was_replaced_the_weights_are_those_of_training_alone(
    make_bed: Make, tmp_path: Path
) -> None:
    arguments = ["--epochs", "50", "--step-seconds", "0.4"]
    alone = tmp_path / "alone.npz"
    subprocess.run([sys.executable, TINY, *arguments, "--weights", str(alone)], check=True, timeout=patient(60))
    bed = make_bed(*arguments, "--weights", str(tmp_path / "elastic.npz"))
    bed.begin()
    for joiner, wanted in (("C", "BC"), ("D", "CD")):
        bed.add_node(joiner)
        bed.wait_for(bed.saw("worker_ready", joiner), 60, f"{joiner} stands by")
        bed.want(wanted)
        bed.wait_for(bed.saw("joined", joiner), 60, f"{joiner} takes over")
    bed.finish()
    assert {event["instance"] for event in bed.events("left")} >= {instance("A"), instance("B")}, "who began is gone"
    assert bed.audit().exact
    bed.wait_for((tmp_path / "elastic.npz").exists, 30, "the weights")
    with np.load(alone) as one, np.load(tmp_path / "elastic.npz") as other:
        difference = max(float(np.abs(one[name] - other[name]).max()) for name in one.files)
    assert difference < 1e-4, "sums in another order; an epoch moves weights of up to 4 by 0.3"


@pytest.mark.pslite
def test_t22_a_base_node_is_exchanged_at_one_boundary_and_its_machine_can_go(make_bed: Make) -> None:
    """Were a server left on it, its end would send everybody back to the last commit."""
    bed = make_bed()
    bed.begin()
    bed.add_node("C")
    bed.wait_for(bed.saw("worker_ready", "C"), 60, "C stands by")
    bed.want("AC", replacing="BC")
    bed.wait_for_epoch(bed.events("segment")[-1]["to"]["epoch"] + 2 if bed.events("segment") else 2)
    assert bed.events("left") == [], "C cannot serve yet"
    bed.promote("C")
    bed.wait_for(bed.saw("joined", "C"), 60, "C takes the place of B")
    bed.wait_for(bed.saw("left", "B"), 60, "B leaves")
    serving = {letter: max(bed.supervisors[instance(letter)].groups, default=0) for letter in "ABC"}
    assert (serving["A"], serving["C"], serving["B"] < 2) == (2, 2, True), (
        "where the servers of the second generation are"
    )
    bed.lose_node("B")
    bed.wait_for(lambda: bed.events("node_lost"), 30, "B is gone")
    bed.wait_for_epoch(bed.events("segment")[-1]["to"]["epoch"] + 3)
    bed.finish()
    assert [(event["joining"], event["leaving"]) for event in bed.events("forming")[1:]] == [
        ([instance("C")], [instance("B")])
    ], "one boundary"
    assert (bed.events("restart"), bed.events("releasing"), bed.audit().exact) == ([], [], True)
    assert {name: len(node.pids) for name, node in bed.supervisors.items()} == {
        instance(letter): 1 for letter in "ABC"
    }, "nobody was restarted"


def test_t8_workers_killed_all_at_once_cost_what_came_after_the_commit(make_bed: Make) -> None:
    bed = make_bed()
    bed.begin()
    bed.wait_for_epoch(3)
    for letter in "AB":
        bed.kill_worker(letter)
    bed.wait_for(lambda: len(bed.events("formed")) == 2, 60, "fresh workers go on")
    bed.finish()
    assert bed.events("forming")[-1]["position"]["epoch"] >= 2, "not from the beginning"
    audit = bed.audit()
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, 80)


@pytest.mark.pslite
def test_t7_a_killed_server_costs_what_came_after_the_commit(make_bed: Make) -> None:
    bed = make_bed()
    bed.begin()
    bed.wait_for_epoch(3)
    bed.kill_server()
    reason = bed.wait_for(lambda: bed.events("restart"), 30, "the loss is noticed")[0]["reason"]
    bed.finish()
    assert "ps-lite process" in reason
    assert bed.events("forming")[-1]["position"]["epoch"] >= 2
    audit = bed.audit()
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, 80)


def test_t7_two_workers_killed_at_once_cost_the_third_one_step(make_bed: Make) -> None:
    bed = make_bed()
    bed.begin("ABC")
    bed.wait_for_epoch(2)
    for letter in "BC":
        bed.kill_worker(letter)
    bed.wait_for(lambda: bed.events("released"), 30, "A is free")
    bed.finish()
    assert len(bed.supervisors[instance("A")].pids) == 1
    assert (bed.events("restart"), bed.audit().exact) == ([], True)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_t9_a_joiner_that_dies_inside_the_formation_costs_no_step(make_bed: Make, moment: str) -> None:
    """The others are inside ps-lite with it and have to be killed; the last commit is a segment behind."""
    bed = make_bed("--epochs", "40", "--doom", moment, segment_steps=3, boundary="segment")
    bed.begin()
    bed.add_node("C")
    bed.wait_for(bed.saw("worker_ready", "C"), 60, "C stands by")
    (bed.folder / f"doom-{instance('C')}").touch()
    bed.want("ABC")
    bed.wait_for(lambda: bed.events("restart"), 60, "C dies and everybody is restarted")
    bed.wait_for(bed.saw("joined", "C"), 60, "C's next process joins")
    bed.finish()
    lost, again = (event for event in bed.events("forming")[1:3])
    assert (again["position"], again["safe"], again["commit"]) == (lost["position"], instance("A"), None)
    generations: dict[int, set[int]] = {}
    for path in bed.job.ledger.glob("*.intents.jsonl"):
        for line in read_lines(path):
            generations.setdefault(line["s"], set()).add(line["g"])
    assert [step for step, begun in generations.items() if len(begun) > 1] == [], "no step was begun twice"
    assert bed.audit().exact
    assert [len(bed.supervisors[instance(letter)].pids) for letter in "ABC"] == [2, 2, 2]


def test_t9_a_joiner_killed_at_any_moment_of_a_change_leaves_the_job_exact(make_bed: Make) -> None:
    """Before the word to go the survivors keep their processes, inside ps-lite they start from their safe state, after
    it a step is void.
    """
    bed = make_bed("--epochs", "60", "--step-seconds", "0.3")
    bed.begin()
    bed.add_node("C")
    bed.want("ABC")
    for round_, moment in enumerate((0.0, 0.1, 0.4), start=1):
        bed.wait_for(
            lambda n=round_: sum(instance("C") in e["joining"] for e in bed.events("forming")) >= n,
            60,
            "C is settled in",
        )
        time.sleep(moment)  # somewhere in the change
        bed.kill_worker("C")
        bed.wait_for(
            lambda n=round_: sum(e["instance"] == instance("C") for e in bed.events("worker_lost")) >= n,
            30,
            "the loss is noticed",
        )
    bed.finish()
    audit = bed.audit()
    assert (audit.lost, audit.doubled, len(audit.epochs)) == (0, 0, 60)
