"""Every wait of a real job has an end, and what is only slow is left alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import paced, patient
from dyntrain.training.protocol.clocks import Clocks
from dyntrain.training.session.generation.generation import Limits
from job_bed import JobBed, instance

pytestmark = pytest.mark.jobs

Make = Callable[..., JobBed]


@pytest.mark.timeout(240)
def test_t18_slow_loading_costs_nobody_anything_and_a_worker_that_computes_for_ever_is_replaced(
    make_bed: Make, tmp_path: Path
) -> None:
    """The load takes longer than the liveness clock: an eviction would start the worker again, and again, at each slow
    batch.
    """
    liveness = paced(3.0)
    clocks = Clocks(liveness, progress=patient(9.0))  # within it the worker's replacement has to start
    load = ("--load-seconds", str(1.4 * liveness))
    bed = make_bed("--orders", str(tmp_path), *load, clocks=clocks)
    bed.begin()
    (tmp_path / "load").touch()
    bed.wait_for((tmp_path / "loaded").exists, 30, "the slow batch is there")
    slow = bed.events("worker_lost") + bed.events("releasing")
    (tmp_path / "compute").touch()
    stuck = bed.wait_for(lambda: bed.events("releasing"), 40, "nobody gets on, which is noticed")
    bed.wait_for(lambda: len(bed.events("joined")) == 3, 60, "the worker that was stuck is replaced")
    bed.finish()
    assert slow == []
    assert stuck[0]["reason"] == f"nobody made progress for {clocks.progress:.0f} s"
    assert [event["reason"] for event in bed.events("worker_lost")] == [
        f"not prepared to form within {clocks.formation_limit:.0f} s"
    ]
    assert sorted(len(node.pids) for node in bed.supervisors.values()) == [1, 2], "the other one goes on in its process"
    assert bed.events("restart") == []
    assert bed.audit().exact


@pytest.mark.timeout(240)
def test_t13_t10_ten_changes_in_a_segment_are_one_and_below_the_minimum_the_job_pauses_goes_on_and_fails(
    make_bed: Make, tmp_path: Path
) -> None:
    bed = make_bed("--orders", str(tmp_path), limits=Limits(2, 4), pause_seconds=10.0)
    bed.begin()
    for letter in "CD":
        bed.add_node(letter)
        bed.wait_for(bed.saw("worker_ready", letter), 60, f"{letter} stands by")
    (tmp_path / "gate").touch()
    bed.wait_for(
        lambda: list(tmp_path.glob("at-the-gate.*")), 30, "one is inside a step, which the other cannot end without it"
    )
    for wanted in ("ABC", "AB", "BC", "ABC", "AC", "AB", "BC", "ABC", "AB", "AC"):
        bed.want(wanted)
        bed.wait_for(bed.obeyed, 20, "the coordinator has seen the change")
    (tmp_path / "gate").unlink()
    bed.wait_for(bed.saw("left", "B"), 30, "one for the other")
    bed.wait_for(bed.saw("joined", "C"), 30, "one for the other")
    changes = [(event["joining"], event["leaving"]) for event in bed.events("forming")[1:]]

    bed.want("A")
    bed.wait_for(lambda: "minimum" in bed.hosts.reports[-1].reason, 30, "the pause is reported")
    bed.want("AD")
    bed.wait_for(bed.saw("joined", "D"), 30, "there are enough again, and it goes on")
    bed.want("A")
    bed.wait_for(bed.obeyed, 20, "the coordinator has seen the change")
    bed.finish(60)
    assert changes == [([instance("C")], [instance("B")])]
    assert bed.events("failed")[0]["reason"] == "fewer wanted workers are ready than the minimum, for 10 s"
    assert bed.hosts.reports[-1].state == "failed"
    assert bed.audit().exact
