"""Variables that a worker that joins has otherwise are told of where the loop begins, with their names and the line."""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import indent

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from dyntrain.training.worker.script.reads import Reads
from test_script_unset import run

BODIES = {
    "the best so far, by which is saved": (
        "acc = validate()\nif acc > best:\n    best = acc\n    net.save_parameters('best')",
        ["best"],
    ),
    "... by which something is only printed": ("if acc > best:\n    best = acc\n    print('better')", []),
    "... in an object's attribute": ("if acc > self.best:\n    self.best = acc\n    self.save()", ["self.best"]),
    "patience": ("bad = 0 if better() else bad + 1\nif bad > 3:\n    job.stop()", ["bad"]),
    "a counter that sets the rate": ("steps += 1\ntrainer.set_learning_rate(1 / steps)", ["steps"]),
    "a counter of decays": ("if epoch == at[count]:\n    count += 1", ["count"]),
    "a counter that is printed": ("steps += 1\nprint(f'step {steps}')", []),
    "a mean of the epoch's losses": (
        "total = 0\nfor x in loader:\n    total = total + step(x)\nprint(total / 3)\nscores.append(total)",
        [],
    ),
    "a rate that decays": ("rate *= 0.9\ntrainer.set_learning_rate(rate)", ["rate"]),
    "a list that gets shorter": ("if epoch == at[0]:\n    fit(at.pop(0))", ["at"]),
    "a queue": ("rate = rates.popleft()\ntrainer.set_learning_rate(rate)", ["rates"]),
    "a list that gets longer": ("history.append(validate())", []),
    "... by which is decided": ("if history and validate() > history[-1]:\n    history.append(0)", ["history"]),
    "the last loss, which is waited for": (
        "for x in loader:\n    if last is not None:\n        last.wait_to_read()\n    last = step(x)",
        [],
    ),
    "a copy that is put away and thrown away": (
        "self.backup[name] = weight()\nset_to(self.backup[name])\nself.backup = {}",
        [],
    ),
    "... now and then": (
        "self.backup[name] = weight()\nset_to(self.backup[name])\nif epoch > 3:\n    self.backup = {}",
        ["self.backup"],
    ),
    "what the job remembers, one of it emptied": ("memory.seen = {}\nif acc > memory.best:\n    memory.best = acc", []),
    "a clock": ("speed = 64 / (time.time() - tic)\ntic = time.time()", []),
    "... by way of another": ("now = time.time()\nspeed = 64 / (now - tic)\ntic = now", []),
    "set in each epoch before it is used": ("best = validate()\nif best > 3:\n    job.stop()", []),
    "set in the first epoch": ("if epoch == 0:\n    scale = 1.0\nelse:\n    scale = scale / 2\nfit(scale)", ["scale"]),
    "... and used in all": ("if epoch == 0:\n    mean = fit()\nfit(mean)", ["mean"]),
    "... by a function": ("if epoch == 0:\n    trainer.start(rows)\nfit(self.mean)", ["self.mean"]),
    "set in some and used in those": (
        "if epoch > 3 and len(rows):\n    rate = validate()\nfit(epoch)\nif len(rows) and epoch > 3:\n    fit(rate)",
        [],
    ),
    "set where a number is one": ("if np.isfinite(acc):\n    rate = 1\nif np.isfinite(acc):\n    fit(rate)", []),
    "set where there is a list": (
        "if seen is not None:\n    rate = validate()\n    seen.append(3)\nif seen is not None:\n    fit(rate)",
        ["seen"],
    ),
    "set where a call says so": ("if better():\n    rate = validate()\nfit(rate)", ["rate"]),
    "... and used there": ("if random.random() < p:\n    rate = validate()\n    fit(rate)", []),
    "... and used where another says so": ("if better():\n    rate = 1\nif better():\n    fit(rate)", ["rate"]),
    "set where one says so or does not": ("if better():\n    rate = 1\nelse:\n    rate = 2\nfit(rate)", []),
    "set on the one that writes": ("if job.writes:\n    rate = validate()\nfit(rate)", ["rate"]),
    "set under what is the same twice": ("new = f()\nif new:\n    rate = 1\nif new:\n    fit(rate)", []),
    "... and changes between": ("new = f()\nif new:\n    rate = 1\nnew = f()\nif new:\n    fit(rate)", ["rate"]),
    "... within": ("new = f()\nif new:\n    rate = 1\n    new = f()\nif new:\n    fit(rate)", ["rate"]),
    "... before it": ("new = f()\nif new:\n    new = f()\n    rate = 1\nif new:\n    fit(rate)", ["rate"]),
    "... before the use": ("new = f()\nif new:\n    rate = 1\nif new:\n    new = f()\n    fit(rate)", []),
    "set in either case of what changes": (
        "new = f()\nif new:\n    new = f()\n    rate = 1\nelse:\n    rate = 2\nfit(rate)",
        [],
    ),
    "set in some epochs and used in others": (
        "if not epoch % 3:\n    rate = validate()\nif epoch % 3:\n    fit(rate)",
        ["rate"],
    ),
    "set in either case": (
        "if epoch > 3:\n    rate = 0.1\nelif epoch > 2:\n    rate = 0.2\nelse:\n    rate = 0.3\nfit(rate)",
        [],
    ),
    "set in either of several cases": (
        "if epoch > 3 or better():\n    rate = 0.1\nelse:\n    rate = 0.2\nfit(rate)",
        [],
    ),
    "set in some where an option says so": (
        "if args.mixup and epoch > 3:\n    much = draw()\nif epoch > 3:\n    fit(much if args.mixup else 1)",
        [],
    ),
    "a rate that is set at first and decays": (
        "if args.warmup and epoch < 3:\n    rate = 0.1 * epoch\nif epoch == 5:\n    rate = rate * 0.1\nfit(rate)",
        ["rate"],
    ),
    "set where an option says so": ("if args.mixup:\n    much = draw()\nif args.mixup or fit():\n    fit(much)", []),
    "used where it was set in this epoch": ("if epoch > 3:\n    if acc():\n        rate = 1\n        fit(rate)", []),
    "shown before it is set": ("print(acc)\nacc = validate()\nfit(acc)", []),
    "a comprehension's own": ("x = [x for x in rows]\nfit(x)", []),
    "of a comprehension": ("fit([each * scale for each in rows])\nscale = 2", ["scale"]),
    "a function's own": ("def f():\n    n = 0\n    return n\nfit(f())", []),
    "the loop's own": ("epoch = epoch + 1\nfit(epoch)", []),
    "never changed": ("if acc() > goal:\n    job.stop()", []),
    "the job's": ("if acc > memory.best:\n    memory.best = acc", []),
    "assigned in a test": ("if (n := count(n)) > 3:\n    job.stop()", ["n"]),
    "of the command line": ("fit(args.rate)\nargs.rate *= 0.9", ["args.rate"]),
    "in a dictionary": ("fit(state['rate'])\nstate['rate'] = state['rate'] / 2", ["state[rate]"]),
    "... that is only printed": ("state['seen'] += 1\nprint(state['seen'])", []),
    "of another's object": ("fit(net.rate)\nnet.rate *= 0.9", ["net.rate"]),
    "a count on an object": ("state.step += 1\nif state.step % 3 == 0:\n    fit()", ["state.step"]),
    "... that is only shown": ("state.step += 1\nprint(state.step)", []),
    "a margin of a loss": ("loss.margin += 0.1\nfit(loss(x))", ["loss.margin"]),
    "a margin that is set in each epoch": ("loss.margin = 0.1 * epoch\nfit(loss(x))", []),
    "what goes with the job": ("if p.grad_req != 'null':\n    p.grad_req = 'null'\n    fit(p)", []),
    "a generator": ("if rng.random() < 0.5:\n    fit(x)", ["rng"]),
    "a generator that is seeded": ("rng.seed(epoch)\nfit(rng.random())", []),
    "a generator that is made anew": ("rng = random.Random(epoch)\nfit(rng.random())", []),
    "an iterator": ("fit(next(rates))", ["rates"]),
    "an array, by place": ("margins[:] = margins * 0.9\nfit(margins)", ["margins"]),
    "a list, by place": ("fit(losses)\nlosses[epoch] = 3", ["losses"]),
    "... that is added to": ("fit(losses)\nlosses[epoch] += 3", ["losses"]),
    "a buffer that is filled anew": ("rows[:] = x\nfit(rows)", []),
    "what the job keeps in a list": ("inner[0] = 0.8 * inner[0] + fit()\nfit(inner)", []),
    "a part of an object that has some of the job's": ("self.rate *= 0.9\nfit(self.rate)", ["self.rate"]),
    "what the job keeps": ("average[0] = 0.8 * average[0] + fit()\nfit(average)", []),
    "... that had its name before": ("given[0] = 0.8 * given[0] + fit()\nfit(given)", []),
    "annotated": ("n: int = n + 1\nfit(n)", ["n"]),
}


ABOVE = """
class Trainer:
    def start(self, rows):
        self.mean = fit(rows)

rng = random.Random(0)
trainer = Trainer()
args, state = parser.parse_args(), None
memory = job.memory(best=0.0, seen={})
state = {"rate": 0.1, "seen": 0}
average = job.keep([array])
job.keep(given)
job.keep([inner, self.average])
self.memory = job.memory(best=0.0)
"""


def loop_of(target: str, body: str, above: str = "") -> tuple[Reads, ast.For]:
    tree = ast.parse(f"{above}\nfor {target}:\n{indent(body, '    ')}")
    found = tree.body[-1]
    assert isinstance(found, ast.For)
    return Reads(tree), found


@pytest.mark.parametrize("case", BODIES)
def test_what_goes_from_epoch_to_epoch_and_is_computed_by_is_found(case: str) -> None:
    body, expected = BODIES[case]
    reads, loop = loop_of("epoch in job.epochs(9)", body, ABOVE)
    assert reads.carried(loop) == expected


FUNCTIONS = """
class Trainer:
    def fit(self, rows):
        self.steps += len(rows)
        self.again(rows)
        self.rate(self.steps)
        loss = 0
        loss = loss + 1
        keep(loss)

    def again(self, rows):
        self.fit(rows)

def keep(loss):
    global least
    if loss < least:
        least = loss
        save()

def rate(steps):
    scale = scale + 1
    return scale

class Stopper:
    def step(self, value):
        if value > self.best:
            self.best = value
        return value < self.best

class Other:
    def step(self, value):
        self.seen = self.seen + value
        return self.seen

class Clip:
    def __call__(self, net):
        self.norms = self.norms + [norm_of(net)]
        return min(self.norms)

class Squares:
    def __call__(self, out):
        return out ** 2

class Meter:
    def update(me, value):
        me.total += value
        me.n += 1
    @property
    def mean(me):
        return me.total / me.n

class Rows:
    def grow(self):
        self.many += 8
    def begin(self, epoch):
        self.epoch = epoch
    def __getitem__(self, i):
        return rows[i % self.many + self.epoch]

def start():
    least = 3
    def lower(value):
        nonlocal least
        if value < least:
            least = value
            save()

def saves(best, value):
    if value > best[0]:
        best[0] = value
        save()

def notes(history, value):
    history.append(value)
    print(value, history[0])

stopper = Stopper()
clip, trainer.clip, squares, meter, growing = Clip(), Clip(), Squares(), Meter(), Rows()
trainer = job.trainer(params)
"""


def test_what_functions_of_the_file_keep_is_found_as_far_as_their_names_lead() -> None:
    reads, loop = loop_of("epoch in job.epochs(9)", "trainer.fit(rows)", FUNCTIONS)
    assert reads.carried(loop) == ["self.steps", "least"]


CALLS = {
    "a method with an optimizer's name": ("if stopper.step(acc()):\n    job.stop()", ["self.best"]),
    "a property": ("train(meter.mean)\nmeter.update(3)", ["self.total", "self.n"]),
    "... that is only printed": ("meter.update(3)\nprint(meter.mean)", []),
    "a dataset that changes": ("growing.grow()", ["self.many"]),
    "a dataset that is told the epoch": ("growing.begin(epoch)", []),
    "an optimizer's": ("trainer.step(8)", []),
    "an object": ("trainer.update(clip(net))", ["self.norms"]),
    "an object's object": ("trainer.update(trainer.clip(net))", ["self.norms"]),
    "an object that keeps nothing": ("train(squares(net))", []),
    "of a function around it": ("lower(acc())", ["least"]),
    "a list that is passed": ("saves(kept, acc())", ["kept"]),
    "... under its name there": ("saves(value=acc(), best=kept)", ["kept"]),
    "... and only shown": ("notes(kept, acc())", []),
    "... and used here": ("notes(kept, acc())\ntrain(kept)", ["kept"]),
    "a number that is passed": ("rate(n)\nn += 1", []),
    "... and used there": ("saves([0], n)\nn += 1", ["n"]),
}


@pytest.mark.parametrize("case", CALLS)
def test_what_goes_on_in_what_is_called_is_found(case: str) -> None:
    body, expected = CALLS[case]
    reads, loop = loop_of("epoch in job.epochs(9)", body, FUNCTIONS)
    assert reads.carried(loop) == expected


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("if (i + 1) % 4 == 0:\n    trainer.step(8)", True),
        ("loss = fit(x) * i", True),
        ("if i % 50 == 0:\n    name, acc = metric.get()\n    logging.info('%d: %s', i, acc)", False),
        ("if i % 50 == 0:\n    print(i)\n    trainer.set_learning_rate(0.1)", True),
        ("if i == 50:\n    print(i)\n    optimizer.wd = 0", True),
        ("print(i, fit(x))", False),
        ("fit(x)", False),
    ],
)
def test_enumerates_number_is_found_where_it_is_not_only_shown(body: str, found: bool) -> None:
    told = "i" if found else None
    for over, expected in (
        ("enumerate(loader)", told),
        ("tqdm(enumerate(loader, 1), total=9)", told),
        ("epoch.enumerate(loader)", None),
    ):
        reads, loop = loop_of(f"i, x in {over}", body)
        assert reads.number_used(loop) == expected


SCRIPT = """
best, rows, state = 0.0, data(), {"seen": 0}
trainer = job.trainer(net.collect_params(), "sgd")
for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
    for i, (x, y) in enumerate(epoch.batches(rows)):
        step(net, trainer, x, y, BATCH)
        if i % 2 == 1:
            state["seen"] += len(x)
        if state["seen"] > 4:
            trainer.set_learning_rate(0.05)
    for i, name in enumerate(["train"]):
        rows.last = i, name
    accuracy = 0.5 + epoch
    if accuracy > best:
        best = accuracy
        net.save_parameters(FILE)
"""


def test_they_are_told_of_where_the_loop_begins_and_it_trains(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run(SCRIPT.replace("FILE", repr(str(tmp_path / "best"))), tmp_path)
    best, number = (record.getMessage() for record in caplog.records if "a worker that joins" in record.getMessage())
    assert "folds.py:4: DT604: state[seen], best: " in best
    assert "job.memory(seen=..., best=...)" in best
    assert "folds.py:5: DT605: the number i of enumerate(...)" in number


NAMED = """
trainer = job.trainer(net.collect_params(), "sgd")
for number, epoch in enumerate(job.epochs(1, samples=SAMPLES, global_batch=BATCH, name="a")):
    trainer.set_learning_rate(0.1 * number)
    bar = enumerate(epoch.batches(data()))
    for i, (x, y) in bar:
        step(net, trainer, x * i, y, BATCH)
for epoch, rate in zip(job.epochs(1, samples=SAMPLES, global_batch=BATCH, name="b"), [0.1]):
    trainer.set_learning_rate(rate)
    for (x, y), other in zip(epoch.batches(data()), [1.0] * 9):
        step(net, trainer, x, y, BATCH)
"""


def test_what_goes_beside_epochs_and_a_count_that_has_a_name_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(NAMED, tmp_path)
    told = [record.getMessage() for record in caplog.records if "a worker that joins" in record.getMessage()]
    epochs, batches, beside, paired = told
    assert "folds.py:3: DT609: the number number of enumerate(...) over the epochs" in epochs
    assert "folds.py:6: DT605: the number i of enumerate(...)" in batches
    assert "folds.py:8: DT608: what goes beside the epochs in zip(...)" in beside
    assert "folds.py:10: DT607: what goes beside the batches in zip(...)" in paired


LOOP = """
n, best, at = 0, 1.0, 0
for epoch in job.epochs(3):
    n += 1
    loss = fit(epoch)
    if loss < best:
        best, at = loss, int(epoch)
"""
LATER = {
    "a count by which is computed": ("fit(0.1 * n)", ["n"]),
    "two of them": ("fit(at, n)", ["at", "n"]),
    "one that is only shown": ("print(n)", []),
    "one that is set anew": ("n = 3\nfit(n)", []),
    "by the one that writes": ("if job.writes:\n    save(n)", []),
    "in the next loop": ("for epoch in job.epochs(2):\n    fit(n)", ["n"]),
}


@pytest.mark.parametrize("case", LATER)
def test_what_one_loop_counts_and_a_later_line_uses_is_found(case: str) -> None:
    after, expected = LATER[case]
    for source in (f"{LOOP}{after}\n", "def main():\n" + indent(f"{LOOP}if True:\n{indent(after, '    ')}\n", "    ")):
        tree = ast.parse(f"{source}\n{indent('for epoch in job.epochs(1): pass', '    ' * source.startswith('def'))}")
        loop = next(node for node in ast.walk(tree) if isinstance(node, ast.For))
        assert Reads(tree).used_later(tree, loop) == expected
    alone = ast.parse(f"{LOOP}fit(n)\n")
    assert Reads(alone).used_later(alone, next(node for node in ast.walk(alone) if isinstance(node, ast.For))) == []
