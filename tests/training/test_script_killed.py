"""A worker killed in the middle of what takes several exchanges or batches, on the real ps-lite: two networks that are
trained against each other, words that are summed before the gradients, and gradients that add up over batches and over
the end of an epoch.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import idioms
import numpy as np
import phased
import pytest
from conducted import Plain
from dyntrain.training.job import ElasticJob
from job_bed import JobBed, instance

pytestmark = pytest.mark.jobs
SCRIPT = Path(__file__).with_name("mortal_idiom.py")


@pytest.mark.parametrize(
    ("name", "step", "exchange"),
    [
        pytest.param("dcgan", 5, 1, id="between the updates of two networks"),
        pytest.param("translation", 5, 0, id="at the sum of the words of a batch"),
        pytest.param("accumulation", 6, 0, id="at the sum of four batches, of which one is of the epoch before"),
        pytest.param("truncated", 6, 0, id="in a batch whose rows go on with hidden states"),
        pytest.param("sentiment_analysis", 6, 0, id="in a batch of a sampler that remembers its passes"),
        pytest.param("unfreezing", 6, 0, id="in the first of two phases"),
        pytest.param("same_trainer", 7, 0, id="in the last step of the first phase"),
        pytest.param("unfreezing", 11, 0, id="in the second phase"),
        pytest.param("fresh_head", 13, 0, id="in the third phase, and who comes again goes past two"),
        pytest.param("progressive_with_processes", 13, 0, id="in the second phase, with loading processes"),
    ],
)
def test_t9_a_kill_within_an_epoch_leaves_the_weights_of_one_process(
    tmp_path: Path, name: str, step: int, exchange: int
) -> None:
    (tmp_path / "doom").touch()
    bed = run(tmp_path, name, str(step), str(exchange), str(tmp_path))
    assert not (tmp_path / "doom").exists(), "nobody was killed"
    assert len(bed.events("released")) == 1
    assert bed.events("restart") == []
    assert sorted(len(bed.supervisors[instance(letter)].pids) for letter in "ABC") == [1, 1, 2]
    right(bed, tmp_path, name)


def test_t9_a_job_whose_workers_are_all_killed_in_the_second_phase_goes_on_in_it(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"doom-{number}").touch()
    bed = run(tmp_path, "unfreezing", "11", "0", str(tmp_path), "all")
    assert list(tmp_path.glob("doom-*")) == [], "somebody was not killed"
    (again,) = [event for event in bed.events("forming") if event["safe"] or event["commit"]]
    assert again["position"]["step"] >= 8, "nothing of the first phase was trained again"
    assert len(bed.events("loop_finished")) == 2
    right(bed, tmp_path, "unfreezing")


def run(folder: Path, *arguments: str) -> JobBed:
    bed = JobBed(folder, [sys.executable, str(SCRIPT), *arguments], workers=3)
    try:
        for letter in "ABC":
            bed.add_node(letter, base=letter != "C")
        bed.want("ABC")
        bed.finish()
    finally:
        bed.close()
    return bed


def right(bed: JobBed, folder: Path, name: str) -> None:
    """Exact, with the weights of one process."""
    report = bed.audit()
    assert report.exact, report
    with contextlib.chdir(folder):  # where a job that is alone has its output
        expected = getattr(phased if hasattr(phased, name) else idioms, name)(
            ElasticJob.join() if name == "fresh_head" else Plain()
        )
    saved = list(folder.glob("weights-*.npz"))
    assert len(saved) >= 2, "both survivors came to the end"
    for file in saved:
        with np.load(file) as weights:
            for mine, theirs in zip(weights.values(), expected, strict=True):
                np.testing.assert_allclose(mine, theirs, atol=2e-5, rtol=1e-4)
