"""Attributes of MXNet are replaced from where a loop over epochs begins to where it ends, and those alone that are
wanted.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from dyntrain import training
from dyntrain.controller.local.pace import patient
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.loop.instrument import Listeners
from dyntrain.training.worker.loop.slices import Slices
from dyntrain.training.worker.replaced import Replaced
from idioms import BATCH, SAMPLES, data, mlp
from mxnet import autograd, gluon
from phased import step

import mxnet as mx  # isort: skip

REPLACES = "worker/replaced.py"  # the only file that may
COMPARED = """
import sys
import dyntrain.training.numpy_aliases
from mxnet import gluon, nd, autograd
import mxnet.contrib.amp

def attributes():
    # of all modules and classes, each of these once, by whatever names it is there
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "mxnet"]
    classes = {each for module in modules for each in list(vars(module).values()) if isinstance(each, type)}
    return {(owner, key): each for owner in (*modules, *classes) for key, each in list(vars(owner).items())}

before = attributes()
sys.path.insert(0, TESTS)
from dyntrain.training.job import ElasticJob
from idioms import BATCH, SAMPLES, data, mlp
from phased import step
job, net = ElasticJob.join(checks=sys.argv[1]), mlp()
net.hybridize()
trainer = job.trainer(net.collect_params(), "sgd")
within = 0
for phase in "ab":
    for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH, name=phase):
        now = attributes()
        within = sum(now[key] is not value is not None for key, value in before.items())
        for x, y in epoch.batches(data()):
            step(net, trainer, x, y, BATCH)
    now = attributes()
    changed = [key for key, value in before.items() if now[key] is not value is not None]  # MXNet fills in some later
    assert not changed, changed
print(within)
"""


@pytest.mark.parametrize(("checks", "replaced"), [("warn", 15), ("off", 10)])
def test_after_a_loop_no_attribute_of_mxnet_differs_from_a_fresh_import(checks: str, replaced: int) -> None:
    """And within it no more than the documents say."""
    script = COMPARED.replace("TESTS", repr(str(Path(__file__).parent)))
    done = subprocess.run(
        [sys.executable, "-c", script, checks], check=True, timeout=patient(120), stdout=subprocess.PIPE, text=True
    )
    assert int(done.stdout.split()[-1]) == replaced


def in_a_loop(job: ElasticJob) -> Iterator[Any]:
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd")
    for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            yield epoch
            step(net, trainer, x, y, BATCH)


def test_without_checks_what_they_alone_want_stays_as_it_is() -> None:
    before = mx.nd.NDArray.backward, autograd.backward, mx.nd.NDArray.grad, gluon.HybridBlock._call_cached_op
    writes = mx.nd.NDArray.__setitem__
    for checks, stays in (("off", True), ("warn", False)):
        for _ in in_a_loop(ElasticJob.join(checks=checks)):  # type: ignore[arg-type]
            now = mx.nd.NDArray.backward, autograd.backward, mx.nd.NDArray.grad, gluon.HybridBlock._call_cached_op
            assert [one is other for one, other in zip(before, now, strict=True)] == [stays] * len(now)
            assert mx.nd.NDArray.__setitem__ is not writes, "undo wants it"
    assert mx.nd.NDArray.__setitem__ is writes


def test_what_one_loop_replaces_stays_until_the_last_one_has_ended() -> None:
    before = gluon.Block.__call__
    first, second = (in_a_loop(ElasticJob.join()) for _ in range(2))
    next(first), next(second)
    second.close()
    assert gluon.Block.__call__ is not before
    first.close()
    assert gluon.Block.__call__ is before


def test_of_two_listeners_one_alone_can_answer() -> None:
    assert Listeners(Slices()).splits is not None
    with pytest.raises(ValueError, match="splits"):
        Listeners(Slices(), Slices())


def test_what_was_inherited_is_inherited_again() -> None:
    class Base:
        value = 1

    class Derived(Base):
        pass

    replaced = Replaced()
    for owner in (Base, Derived):
        replaced.replace(owner, "value", lambda value: value + 1)
    assert (Base.value, Derived.value) == (2, 3)
    for owner in (Derived, Base):
        replaced.put_back(owner, "value")
    assert (Base.value, "value" in vars(Derived)) == (1, False)


def writes_to_modules(tree: ast.AST) -> Iterator[int]:
    """Lines on which an attribute of a module, or of a class of one, is set."""
    imported = {
        each.asname or each.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for each in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            owner: ast.expr = node.value
            while isinstance(owner, ast.Attribute):
                owner = owner.value
            if isinstance(owner, ast.Name) and owner.id in imported and is_foreign(owner.id):
                yield node.lineno


def is_foreign(name: str) -> bool:
    return isinstance(vars(mx).get(name), ModuleType | type) or name == "mx"


@pytest.mark.parametrize("room", ["worker", "job.py", "trial"])
def test_one_file_alone_replaces_attributes(room: str) -> None:
    top = Path(training.__path__[0])
    files = [top / room] if room.endswith(".py") else sorted((top / room).rglob("*.py"))
    assert files
    wrong = [f"{file}:{line}" for file in files for line in writes_to_modules(ast.parse(file.read_text()))]
    assert not [each for each in wrong if REPLACES not in each]
