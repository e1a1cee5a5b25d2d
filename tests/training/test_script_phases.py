"""Several loops over epochs, one after another: each is a phase, and who joins in one does only what stands between."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob, PerWorker
from dyntrain.training.worker.script.phases import unnamed_loops
from dyntrain.training.worker.script.source import Site
from idioms import BATCH, SAMPLES, data, mlp
from matrices import crossed
from phased import early, new_head, progressive, same_trainer, step, unfreezing
from test_script_idioms import all_close

import mxnet as mx  # isort: skip

CHANGES = {
    "three workers": ({0: 3}, []),
    "one, three, two: the second change where the phase begins": ({0: 1, 4: 3, 8: 2}, []),
    "joiners where the second phase begins, and within it": ({0: 1, 8: 2, 10: 3}, []),
    "crashes in both phases": ({0: 3, 5: 2, 11: 1}, [Death(5, 0), Death(10, 1, 0, "applied")]),
    "a crash in the first phase's last step": ({0: 3, 8: 2}, [Death(7, 1)]),
    "a crash between the phases, and a joiner for it": ({0: 3}, [Death(8, 0, 0, "between")]),
    "a crash in the second phase's first step": ({0: 3, 8: 2}, [Death(8, 2)]),
}


@pytest.mark.parametrize(("script", "change"), crossed([unfreezing, new_head, same_trainer, progressive], CHANGES))
def test_t2_two_phases_give_the_weights_of_one_process(script: Any, change: str) -> None:
    plan, deaths = CHANGES[change]
    all_close(Conductor(plan, deaths, 2, loops=2).run(script), script(Plain()))


def test_t2_a_phase_that_is_ended_early_is_followed_by_the_next_one() -> None:
    conductor = Conductor({0: 1, 2: 3, 9: 2, 15: 3}, [Death(7, 1), Death(12, 0, 0, "applied")], 2, loops=3)
    results = conductor.run(early)
    all_close(results, early(ElasticJob.join()))
    assert conductor.position.step == 6 + 8 + 3


SOURCES = {
    "one loop": ("for epoch in job.epochs(1): pass", False),
    "two loops": ("for epoch in job.epochs(1): pass\nfor epoch in job.epochs(1): pass", True),
    "another object's": ("for epoch in job.epochs(1): pass\nfor epoch in other.epochs(): pass", False),
    "another function's": (
        "def a(job):\n    for _ in job.epochs(1): pass\ndef b(job):\n    for _ in job.epochs(1): pass",
        False,
    ),
    "one within another loop": ("for stage in (1, 2):\n    for epoch in job.epochs(stage): pass", True),
    "what is done once before a loop": ("for epoch in [*job.epochs(1)]: pass", False),
}


@pytest.mark.parametrize("name", list(SOURCES))
def test_whether_another_loop_may_follow_is_seen_in_the_source(name: str) -> None:
    source, several = SOURCES[name]
    lines = range(1, 1 + len(source.splitlines()))
    assert any([*unnamed_loops(Site("", line, source, frozenset()), ast.parse(source))] for line in lines) == several


def test_an_epochs_of_another_object_is_no_loop(reported_codes: Any) -> None:
    job, net, schedule = ElasticJob.join(), mlp(), SimpleNamespace(epochs=lambda: [1])
    trainer = job.trainer(net.collect_params(), "sgd")
    for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            step(net, trainer, x, y, BATCH * sum(schedule.epochs()))
    assert job.membership.ended
    assert not reported_codes()


def test_a_second_loop_without_names_is_refused_and_told_of_them(tmp_path: Path) -> None:
    script = "trainer = job.trainer(net.collect_params(), 'sgd')\ndef fit(job):\n" + (
        "    for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):\n"
        "        for x, y in epoch.batches(data()): step(net, trainer, x, y, BATCH)\nfit(job)\n"
    )
    file = tmp_path / "script.py"
    file.write_text(script)
    job = ElasticJob.join()
    names = {"job": job, "net": mlp(), "SAMPLES": SAMPLES, "BATCH": BATCH, "data": data, "step": step}
    exec(compile(script, str(file), "exec"), names)  # noqa: S102
    with pytest.raises(RuntimeError, match=r"was called again.*Give each loop a name: job.epochs\(..., name="):
        job.epochs(1, samples=SAMPLES, global_batch=BATCH)


def test_a_loop_within_a_loop_is_refused() -> None:
    job, net = ElasticJob.join(), mlp()
    job.trainer(net.collect_params(), "sgd")
    epochs = job.epochs(1, samples=SAMPLES, global_batch=BATCH)
    next(epochs)
    with pytest.raises(RuntimeError, match="inside another loop over"):
        job.epochs(1, samples=SAMPLES, global_batch=BATCH)
    with pytest.raises(RuntimeError, match=r"job.trainer\(\) within the loop"):
        job.trainer(net.collect_params(), "sgd")


def test_a_rate_that_follows_the_workers_is_multiplied_once_in_each_loop() -> None:
    def script(job: Any) -> list[float]:
        net, all_rates = mlp(), []

        class Recording(mx.optimizer.SGD):
            def _get_lrs(self, indices: Any) -> Any:
                all_rates.extend(rates := super()._get_lrs(indices))
                return rates

        trainer = job.trainer(net.collect_params(), Recording(learning_rate=0.1))
        for phase in "ab":
            for epoch in job.epochs(1, samples=SAMPLES, batching=PerWorker(BATCH, ramp=0), name=phase):
                for x, y in epoch.batches(data()):
                    step(net, trainer, x, y, len(x))
        assert trainer.learning_rate == pytest.approx(0.1)
        return sorted(set(all_rates))

    assert Conductor({0: 2}, loops=2).run(script) == [[pytest.approx(0.2)]] * 2


def test_a_trainer_whose_rate_follows_the_workers_takes_no_other_batching() -> None:
    job, net = ElasticJob.join(), mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})

    def phase(**options: Any) -> None:
        for epoch in job.epochs(1, samples=SAMPLES, name=str(options), **options):
            for x, y in epoch.batches(data()):
                step(net, trainer, x, y, len(x))

    phase(batching=PerWorker(BATCH))
    with pytest.raises(ValueError, match="another batching"):
        phase(global_batch=BATCH)
