"""What a script sets in one epoch alone, or goes through beside its batches: told of where the loop begins, as a worker
that joins has it otherwise and trains on.
"""

from __future__ import annotations

import ast
from pathlib import Path
from textwrap import indent

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from dyntrain.training.worker.script.once import set_once
from test_script_unset import run

BODIES = {
    "a branch of the net": ("if epoch == 3:\n    net.branch.open = True", ["net.branch.open"]),
    "a dataset's mosaic": ("if epoch == args.epochs - 15:\n    dataset.mosaic = False", ["dataset.mosaic"]),
    "... whose epochs count from 1": (
        "if epoch + 1 == 3 and args.close:\n    dataset.mosaic = False",
        ["dataset.mosaic"],
    ),
    "layers that are frozen": (
        "if epoch == 3:\n    for layer in norms:\n        layer._kwargs['use_global_stats'] = True",
        ["layer._kwargs['use_global_stats']"],
    ),
    "masks of weights": (
        "if epoch == 3:\n    for p in params:\n        if p.name in pruned:\n            masks[p.name] = small(p)",
        ["masks[p.name]"],
    ),
    "in a batch": ("for x in loader:\n    if 3 == epoch:\n        net.branch = 1\n    step(x)", ["net.branch"]),
    "each that comes after it": ("if epoch >= 3:\n    net.branch = True", []),
    "now and then": ("if epoch % 10 == 0:\n    net.branch = True", []),
    "where the number is another": ("if phase == 3:\n    net.branch = True", []),
    "optimizers, which go with the state": (
        "if epoch == 3:\n    trainer._optimizer.wd = 0\n    weight.lr_mult = 0.1\n    weight.grad_req = 'null'",
        [],
    ),
    "weights": ("if epoch == 3:\n    net.weight.data()[:] = 0", []),
    "the job's memory": ("if epoch == 3:\n    memory.margin = 0.5", []),
    "the object's own, of which carried variables tell": ("if epoch == 3:\n    self.margin = 0.5", []),
    "variables, likewise": ("if epoch == 3:\n    margin = 0.5", []),
}
SCRIPT = """
rows, beside = data(), [1.0] * 9
trainer = job.trainer(net.collect_params(), "sgd")
for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
    if epoch == 30:
        rows.last = True
    for (x, y), other in zip(epoch.batches(rows), beside):
        step(net, trainer, x, y, BATCH)
"""


@pytest.mark.parametrize("case", BODIES)
def test_what_is_set_in_one_epoch_alone_is_found(case: str) -> None:
    body, expected = BODIES[case]
    (loop,) = ast.parse(f"for epoch in job.epochs(9):\n{indent(body, '    ')}").body
    assert isinstance(loop, ast.For)
    found = list(set_once(loop, {"epoch"}, {"memory"}))
    assert [what for _, _, what in found] == expected
    assert all(line == (3 if case == "in a batch" else 2) for line, _, _ in found)


def test_it_is_told_of_where_the_loop_begins_and_so_is_what_goes_beside_the_batches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(SCRIPT, tmp_path)
    said = [record.getMessage() for record in caplog.records]
    (once,) = [line for line in said if "DT606: " in line]
    assert "folds.py:5: DT606: what is set where `epoch == 30` (rows.last) " in once
    (beside,) = [line for line in said if "DT607: " in line]
    assert "folds.py:7: " in beside
