"""Variables that a worker that joins has otherwise are told of where the loop begins, with their names and the line."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import indent

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.script.source import Site
from dyntrain.training.worker.script.variables import variable_advice
from idioms import BATCH, SAMPLES, data, mlp
from phased import step

ABOVE = """
memory = job.memory(best=0.0, seen={})
average = job.keep({"w": array})
job.keep(given)
"""
BODIES = {
    "the best so far, by which is saved": ("if acc() > best:\n    best = acc()\n    net.save('best')", "best"),
    "... in an object of the script's": ("if acc() > self.best:\n    self.best = acc()", "self.best"),
    "patience": ("bad = 0 if better() else bad + 1\nif bad > 3:\n    job.stop()", "bad"),
    "a counter that sets the rate": ("steps += 1\ntrainer.set_learning_rate(1 / steps)", "steps"),
    "a counter that is printed": ("steps += 1\nif steps % 50 == 0:\n    print(f'step {steps}')", ""),
    "a mean of the epoch's losses": ("total = 0\nfor x in loader:\n    total = total + step(x)\nprint(total / 3)", ""),
    "a rate that decays": ("rate *= 0.9\ntrainer.set_learning_rate(rate)", "rate"),
    "a queue": ("rate = rates.popleft()\nrates.append(fit(rates))", "rates"),
    "a metric": ("metric.reset()\nmetric.update(y, net(x))\nshow(metric.get())", ""),
    "an update of weights": ("trainer.allreduce_grads()\ntrainer.update(n)", ""),
    "a list that gets longer": ("history.append(validate())", ""),
    "... by which is decided": ("if history and validate() > history[-1]:\n    history.append(0)", "history"),
    "the last loss, which is waited for": ("for x in loader:\n    last.wait_to_read()\n    last = step(x)", ""),
    "a clock": ("now = time.time()\nspeed = 64 / (now - tic)\ntic = now\nlog(speed)", ""),
    "set before it is used": ("best = validate()\nif best > 3:\n    job.stop()", ""),
    "set in either case": ("if epoch == 0:\n    scale = 1.0\nelse:\n    scale = 2\nfit(scale)", ""),
    "set in the first epoch": ("if epoch == 0:\n    mean = fit()\nfit(mean)", "mean"),
    "set in the loop over batches": ("for x in loader:\n    out = net(x)\nfit(out)", ""),
    "a comprehension's own": ("x = [x for x in rows]\nfit(x)", ""),
    "of a comprehension": ("fit([each * scale for each in rows])\nscale = 2", "scale"),
    "a function's own": ("def f():\n    n = 0\n    n += 1\nfit(f())", ""),
    "the loop's own": ("epoch = epoch + 1\nfit(epoch)", ""),
    "never changed": ("if acc() > goal:\n    job.stop()", ""),
    "what the job remembers": ("if acc() > memory.best:\n    memory.best = acc()", ""),
    "what the job keeps": ("average['w'] = 0.8 * average['w'] + fit()\nfit(average)", ""),
    "... that had its name before": ("given[0] = 0.8 * given[0] + fit()\nfit(given)", ""),
    "assigned in a test": ("if (n := count(n)) > 3:\n    job.stop()", "n"),
    "in a dictionary": ("fit(state['rate'])\nstate['rate'] = state['rate'] / 2", "state"),
    "an average that the job keeps, whose name becomes that of another": (
        "average = {n: average[n] + fit() for n in names}\nfit(average)",
        "average",
    ),
    "annotated": ("n: int = n + 1\nfit(n)", "n"),
}


def advise(source: str, line: int) -> dict[str, str]:
    """The advice of the loop that begins at the line, by codes, with the names."""
    site = Site("train.py", line, source, frozenset({"loader"}))
    return {code: str(dict(values).get("names")) for code, _, values in variable_advice(site, ast.parse(source))}


@pytest.mark.parametrize("case", BODIES)
def test_what_goes_from_pass_to_pass_and_is_computed_by_is_found(case: str) -> None:
    body, names = BODIES[case]
    source = f"{ABOVE}for epoch in job.epochs(9):\n{indent(body, '    ')}"
    assert advise(source, 5) == ({"DT604": names} if names else {})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("if (i + 1) % 4 == 0:\n    trainer.step(8)", True),
        ("loss = fit(x) * i", True),
        ("if i % 50 == 0:\n    logging.info('%d', i)", False),
        (
            "if i and not i % 50:\n    name, value = metric.get()\n    log('%d %f', i, value)\n    tic = time.time()",
            False,
        ),
        ("print(i, fit(x))", False),
    ],
)
def test_a_number_of_enumerate_is_told_of_where_it_is_not_only_shown(body: str, expected: bool) -> None:
    for over, is_told in (
        ("enumerate(loader)", expected),
        ("tqdm(enumerate(loader, 1), total=9)", expected),
        ("epoch.enumerate(loader)", False),
    ):
        source = f"for epoch in job.epochs(9):\n    for i, x in {over}:\n{indent(body, ' ' * 8)}"
        assert ("DT605" in advise(source, 1)) == is_told


SCRIPT = """
best = 0.0
trainer = job.trainer(net.collect_params(), "sgd")
for epoch, rate in zip(job.epochs(1, samples=SAMPLES, global_batch=BATCH), [0.1]):
    for i, (x, y) in enumerate(epoch.batches(data())):
        step(net, trainer, x, y, BATCH)
        if i % 2 == 1:
            trainer.set_learning_rate(rate)
    if rate > best:
        best = rate
"""


def test_they_are_told_of_where_the_loop_begins_and_it_trains(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "folds.py"
    file.write_text(SCRIPT)
    names = {"job": ElasticJob.join(), "net": mlp(), "SAMPLES": SAMPLES, "BATCH": BATCH, "data": data, "step": step}
    exec(compile(SCRIPT, str(file), "exec"), names)  # noqa: S102
    for words in (
        "folds.py:4: DT604: the loop carries values in best",
        "job.memory(best=...)",
        "folds.py:4: DT607: an iterator beside",
        "folds.py:5: DT605: the number i of enumerate(...)",
    ):
        assert words in caplog.text
