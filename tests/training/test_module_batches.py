"""Module scripts, however they divide the batch: the gradients are divided by what all workers have in a step, and
schedules count it, through joins, leaves and losses. What one process of MXNet's own Module comes to is what the job
has to come to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest

import mxnet as mx  # isort: skip
from conducted import Conductor, Death
from dyntrain.training.module import Module, ModuleStore
from dyntrain.training.worker.loop.agreed.gradient_scale import GradientScale
from dyntrain.training.worker.refused import RefusedByAll
from dyntrain.training.worker.state.saved_model import WRITER
from mxnet.module.module import Module as ModuleOfMxnet

SAMPLES, BATCH, EPOCHS = 48, 12, 6
STEPS = SAMPLES // BATCH
X = np.random.default_rng(7).normal(size=(SAMPLES, 6)).astype(np.float32)
Y = np.random.default_rng(8).integers(0, 3, SAMPLES).astype(np.float32)
JOINS_AND_LEAVES = {0: 1, STEPS: 2, 2 * STEPS: 3, 4 * STEPS: 1}
NETS: dict[str, Callable[[Any, Any], Any]] = {
    "sums": lambda x, y: mx.sym.SoftmaxOutput(x, y, name="softmax"),
    "means": lambda x, y: mx.sym.SoftmaxOutput(x, y, name="softmax", normalization="batch"),
    "valid": lambda x, y: mx.sym.MakeLoss(
        -mx.sym.pick(mx.sym.log_softmax(x), y), name="softmax", normalization="valid"
    ),
}


@pytest.fixture(autouse=True)
def writer_again() -> Iterator[None]:
    """Which is one for all workers of the test's process."""
    yield
    WRITER.chosen = True


def parts(number: int, workers: int, uneven: bool = False) -> list[int]:
    """Which rows of each batch are this worker's: the first has two more than the others."""
    if uneven and workers > 1:
        most = BATCH // workers + 2
        return list(range(most)) if number == 0 else list(range(most, BATCH))[number - 1 :: workers - 1]
    return list(range(number, BATCH, workers))


class Divided:
    """A fixed batch over all workers, as in the example of DT's that trains ResNet on ImageNet."""

    def __init__(self, uneven: bool = False) -> None:
        self._uneven = uneven

    def get_data_iterator(self, kv: Any) -> tuple[Any, Any]:
        mine = parts(kv.rank, kv.num_workers, self._uneven)
        rows = [at + row for at in range(0, SAMPLES, BATCH) for row in mine]
        return mx.io.NDArrayIter(X[rows], Y[rows], len(mine)), None


def weights_of(module: Any, net: str, train: Any, **options: Any) -> list[Any]:
    begin = np.random.default_rng(9)
    known = {
        "one_weight": begin.normal(size=(3, 6)),
        "one_bias": begin.normal(size=3),
    }
    options.setdefault(
        "optimizer_params", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01, "lr_scheduler": halved()}
    )
    module.fit(
        train,
        num_epoch=EPOCHS,
        arg_params={name: mx.nd.array(value) for name, value in known.items()},
        initializer=None,
        eval_metric=mx.metric.Loss() if net == "valid" else "acc",
        **options,
    )
    weights, _ = module.get_params()
    return [weights[name].asnumpy() for name in sorted(weights)]


def halved(step: int = 7) -> Any:
    return mx.lr_scheduler.FactorScheduler(step, 0.5, base_lr=0.1)


def network(net: str) -> Any:
    x = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="one")
    return NETS[net](x, mx.sym.Variable("softmax_label"))


def with_own_optimizer(options: dict[str, Any]) -> dict[str, Any]:
    """Each worker has an optimizer of its own."""
    return {name: value() if callable(value) and "optimizer" in name else value for name, value in options.items()}


def alone(net: str = "sums", **options: Any) -> list[Any]:
    return weights_of(
        ModuleOfMxnet(network(net)), net, Divided().get_data_iterator(One())[0], **with_own_optimizer(options)
    )


class One:
    rank, num_workers = 0, 1


def conducted(
    conductor: Conductor, net: str = "sums", data: Callable[[], Any] = Divided, **options: Any
) -> list[list[Any]]:
    def script(job: Any) -> list[Any]:
        kv, divided = ModuleStore(job.membership, "dist_sync"), data()
        train, _ = divided.get_data_iterator(kv)
        return weights_of(
            Module(network(net), data_iterator=divided), net, train, kvstore=kv, **with_own_optimizer(options)
        )

    return conductor.run(script)


def assert_all_close(results: list[list[Any]], expected: list[Any]) -> None:
    assert results
    for worker in results:
        for one, other in zip(worker, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=2e-6)


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("plan", [{0: 2}, {0: 3}, JOINS_AND_LEAVES], ids=["two", "three", "joins and leaves"])
def test_a_batch_that_the_script_divides_trains_to_the_weights_of_one_process(net: str, plan: dict[int, int]) -> None:
    assert_all_close(conducted(Conductor(plan, segment_steps=None), net), alone(net))


def test_workers_with_batches_of_different_sizes_train_to_the_weights_of_one_process() -> None:
    conductor = Conductor(JOINS_AND_LEAVES, segment_steps=None)
    assert_all_close(conducted(conductor, data=lambda: Divided(uneven=True)), alone())


@pytest.mark.parametrize("death", [(1, "before"), (0, "applied"), (1, "applied")])
@pytest.mark.parametrize("step", [STEPS, STEPS + 2])
def test_a_worker_that_is_lost_leaves_the_others_to_divide_by_what_they_have(step: int, death: tuple[int, str]) -> None:
    """Who is left begins the epoch again, so its weights are of more steps: they are equal, and divided rightly."""
    divisors: list[float] = []

    def note(parameters: Any) -> None:
        divisors.append(parameters.locals["self"]._optimizer.rescale_grad)

    results = conducted(
        Conductor({0: 3}, [Death(step, death[0], 0, death[1])], segment_steps=None), batch_end_callback=note
    )
    assert_all_close(results, results[0])
    assert set(divisors) == {1.0 / BATCH}


def test_a_worker_that_is_lost_while_the_data_is_divided_costs_nothing() -> None:
    """The one that joins, before it has said what its batch is."""
    conductor = Conductor({0: 1, STEPS: 3}, [Death(0, 2, 0)], segment_steps=None)
    assert_all_close(conducted(conductor), alone())
    assert conductor.reformed == 3


class PerWorker:
    """As many samples a worker, however many there are: an epoch has fewer steps."""

    def get_data_iterator(self, kv: Any) -> tuple[Any, Any]:
        size = BATCH // 2
        rows = list(range(kv.rank, SAMPLES, kv.num_workers))
        train = mx.io.NDArrayIter(X[rows], Y[rows], size)
        return mx.io.ResizeIter(train, SAMPLES // size // kv.num_workers), None


def fixed(**more: Any) -> dict[str, Any]:
    return {"learning_rate": 0.1, "lr_scheduler": halved(3), **more}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"optimizer_params": lambda: fixed(rescale_grad=0.5 / BATCH)},
        {"optimizer": lambda: mx.optimizer.SGD(rescale_grad=1.0 / BATCH, **fixed()), "optimizer_params": ()},
        {"optimizer_params": lambda: fixed(begin_num_update=5)},
        {"optimizer": "adam", "optimizer_params": lambda: fixed(begin_num_update=5)},
    ],
    ids=["MXNet's", "its own", "an optimizer's", "updates from 5 on", "adam's from 5 on"],
)
def test_what_the_script_tells_its_optimizer_is_meant_for_one_process(options: dict[str, Any]) -> None:
    expected = alone(**options)
    assert_all_close(conducted(Conductor({0: 2}, segment_steps=None), **options), expected)
    assert_all_close(conducted(Conductor({0: 1}, segment_steps=None), **options), expected)


def test_with_a_batch_for_each_worker_a_schedule_is_where_its_epochs_are() -> None:
    def rates(plan: dict[int, int]) -> dict[int, set[float]]:
        by_epoch: dict[int, set[float]] = {}

        def script(job: Any) -> None:
            kv, data = ModuleStore(job.membership, "dist_sync"), PerWorker()
            module = Module(network("sums"), data_iterator=data)
            train, _ = data.get_data_iterator(kv)
            weights_of(
                module,
                "sums",
                train,
                kvstore=kv,
                optimizer_params=fixed(lr_scheduler=halved(2 * SAMPLES // (BATCH // 2))),
                epoch_end_callback=lambda epoch, *_: by_epoch.setdefault(epoch, set()).add(
                    module._optimizer.learning_rate
                ),
            )

        Conductor(plan, segment_steps=None).run(script)
        return by_epoch

    assert rates({0: 1}) == rates({0: 2}) == {epoch: {0.1 / 2 ** (epoch // 2)} for epoch in range(EPOCHS)}


def test_where_means_of_unequal_batches_would_be_added_up_all_workers_say_so() -> None:
    with pytest.raises(RefusedByAll, match=r"SoftmaxOutput\(normalization='batch'\).*batches of one size"):
        conducted(Conductor({0: 2}, segment_steps=None), "means", lambda: Divided(uneven=True))
    both = mx.sym.Group([network("sums"), network("means")])
    scale = GradientScale(0.5, 12, both)
    assert scale.gradient_factor(24.0, 288.0, 2) == 0.25, "each worker has the batch of one process"
    with pytest.raises(RefusedByAll, match="one output has normalization='batch'"):
        scale.gradient_factor(12.0, 72.0, 2)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_workers_that_begin_anew_count_on_from_where_they_were(optimizer: str) -> None:
    options = {"optimizer": optimizer, "optimizer_params": lambda: fixed(begin_num_update=5)}
    before = Conductor({0: 2, 2 * STEPS: 3}, segment_steps=None)
    expected = alone(**options)
    assert_all_close(conducted(before, **options), expected)
    (block,) = [block for at, block in before.blocks.items() if at.step == 2 * STEPS]
    assert_all_close(conducted(Conductor({0: 2}, segment_steps=None, start=block), **options), expected)
