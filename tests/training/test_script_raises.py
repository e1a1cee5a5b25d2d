"""A script of a real job that raises in the body of its loop: without its traceback in the report, people look for it
in the logs of machines that are gone, and the job starts again until its restarts are used up.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import idioms
import pytest
from dyntrain.training.worker.refused import Refused, past_help
from job_bed import JobBed

SCRIPT = Path(idioms.__file__).with_name("mortal_idiom.py")
PROBED = f"""
import logging, sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
import probed_scripts
logging.basicConfig(level=logging.INFO)
probed_scripts.SCRIPTS[sys.argv[1]][0]()
"""
NO_TRAINER = """
from dyntrain import ElasticJob

for epoch in ElasticJob.join().epochs(2, samples=24, global_batch=12):
    pass
"""
OWN_DIVISOR = """
from dyntrain import ElasticJob
import mxnet as mx
from mxnet import autograd, gluon

job = ElasticJob.join()
net = gluon.nn.Dense(1, in_units=3)
net.initialize()
trainer = job.trainer(net.collect_params(), "sgd")
x = mx.nd.random.normal(shape=(24, 3))
for epoch in job.epochs(2, samples=24, global_batch=12):
    for data in epoch.batches(gluon.data.ArrayDataset(x)):
        with autograd.record():
            loss = net(data) ** 2
        loss.backward()
        trainer.step(len(data) + 0.5)
"""


def failed(folder: Path, *command: str) -> JobBed:
    """A job of two workers that has ended by its script's failure."""
    bed = JobBed(folder, [sys.executable, *command], workers=2)
    try:
        for letter in "AB":
            bed.add_node(letter, base=True)
        bed.want("AB")
        bed.wait_for(lambda: bed.events("failed"), 90, "the job ends")
    finally:
        bed.close()
    return bed


@pytest.mark.jobs
def test_t2_a_real_job_is_refused_by_what_its_workers_find_in_the_first_batch(tmp_path: Path) -> None:
    """Class weights that are counted in it: MXNet's record does not show them."""
    bed = failed(tmp_path, "-c", PROBED, "classes_counted_in_the_batch")
    (end,) = bed.events("failed")
    assert re.search(r"DT201: .*for 12 samples .*for 5 and 7 samples", end["reason"])
    assert bed.events("restart") == []


@pytest.mark.jobs
def test_t2_a_real_job_is_refused_by_what_its_loss_becomes_in_a_second_loop(tmp_path: Path) -> None:
    """Steps have been made by then, with servers and a coordinator that a child must leave alone."""
    bed = failed(tmp_path, "-c", PROBED, "classes_counted_in_a_second_loop")
    (end,) = bed.events("failed")
    assert "DT201: " in end["reason"]
    assert bed.events("restart") == []


@pytest.mark.jobs
def test_t8_what_is_refused_where_the_loop_begins_ends_a_real_job_without_using_up_its_restarts(tmp_path: Path) -> None:
    """Nobody has joined yet, so nobody could say more than an exit code: each node had six tracebacks in its log."""
    bed = failed(tmp_path, "-c", NO_TRAINER)
    (end,) = bed.events("failed")
    assert "the job refuses the script on every node" in end["reason"]


@pytest.mark.jobs
def test_t2_what_each_worker_refuses_in_words_of_its_own_ends_a_real_job_at_once(tmp_path: Path) -> None:
    """The numbers in it are those of its share: no two workers say the same, however often they are started again."""
    bed = failed(tmp_path, "-c", OWN_DIVISOR)
    (end,) = bed.events("failed")
    assert re.search(r"cannot go on: Refused: .*DT401: step\([57]\.5\)", end["reason"])
    assert bed.events("restart") == []


def test_t2_what_one_worker_refuses_after_steps_of_the_same_script_is_not_the_others_end() -> None:
    assert not past_help(Refused(), before_steps=False)


@pytest.mark.jobs
def test_t7_a_bug_in_the_body_of_the_loop_ends_a_real_job_the_second_time_with_its_traceback(tmp_path: Path) -> None:
    bed = failed(tmp_path, str(SCRIPT), "raising", "0", "99", str(tmp_path))
    (end,) = bed.events("failed")
    assert end["reason"] == "the script fails at step 4 on every worker: KeyError: 4"
    (raised,) = bed.events("script_failed")
    assert "in raising" in raised["traceback"]
    assert re.search(r"batch 3 of epoch 0 has 5 samples, of which this worker had [23]", raised["traceback"])
    assert len(bed.events("restart")) <= 1
    for log in tmp_path.glob("worker-*.log"):
        assert "was left before its end" not in log.read_text(), "it raised, and did not break off"
