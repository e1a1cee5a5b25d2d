"""`job.keep`: arrays of a script's own are part of the state."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest

import mxnet as mx  # isort: skip
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.protocol.messages import START
from dyntrain.training.worker.state.kept import KeptArrays
from dyntrain.training.worker.state.training_state import TrainingState
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, train, weights
from mxnet import autograd
from test_script_idioms import all_close


def counting(at_most: int | None = None, begins: float = 0.0) -> Callable[[Any], list[Any]]:
    """A net whose weights do not train keeps the number of steps; each epoch's beginning adds a thousand."""

    def script(job: Any) -> list[Any]:
        net, shadow = mlp(), mlp(outputs=2)
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        job.keep(shadow)
        weight = shadow[0].weight
        weight.set_data(mx.nd.zeros_like(weight.data()))
        for epoch in job.epochs(
            EPOCHS, samples=SAMPLES, global_batch=BATCH, local_batch_at_most=at_most, net=[net, shadow]
        ):
            weight.data()[:] += begins
            for x, y in epoch.batches(data()):
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                trainer.step(BATCH)
                weight.data()[:] += 1
        return [weight.data().asnumpy()]

    return script


STEPS = EPOCHS * 4


@pytest.mark.parametrize("at_most", [None, 1], ids=["whole", "in parts"])
def test_t2_what_is_kept_counts_each_step_once_whoever_joins_or_dies(at_most: int | None) -> None:
    """A step that is void, and the parts of a batch before its last, are taken back."""
    conductor = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1), Death(9, 1, 0, "applied")], 1)
    results = conductor.run(counting(at_most))
    assert results
    for (result,) in results:
        assert np.unique(result).tolist() == [STEPS]


def test_t2_what_an_epochs_beginning_does_to_it_counts_once_also_where_a_worker_joins_in_the_epoch() -> None:
    results = Conductor({0: 1, 2: 3, 6: 2}, [], 1).run(counting(begins=1000.0))
    assert results
    for (result,) in results:
        assert np.unique(result).tolist() == [STEPS + EPOCHS * 1000]


def state_of(kept: Any) -> TrainingState:
    net = mlp()
    trainer = ElasticJob.join().trainer(net.collect_params(), "sgd")
    return TrainingState(net, trainer, kept=KeptArrays(kept))


def test_what_differs_in_it_between_workers_is_told_by_its_name() -> None:
    one, other = (state_of({"average": mx.nd.full(3, value)}).sampled_checksums(START) for value in (1, 2))
    differing = [name for (name, mine), (_, theirs) in zip(one, other, strict=True) if mine != theirs]
    assert differing == ["job.keep 0[average]"]


def test_a_state_of_a_script_that_keeps_other_arrays_is_of_another_model() -> None:
    layouts = {state_of({"average": mx.nd.zeros(shape)}).layout for shape in ((3,), (3,), (4,), (4, 1))}
    assert len(layouts) == 3


@pytest.mark.parametrize(
    ("kept", "says"),
    [
        (lambda: mx.nd.zeros(3), "got a single array"),
        (dict, "contains no arrays"),
        (lambda: {"average": np.zeros(3)}, "ndarray: job.keep.. takes a dictionary or list of MXNet's"),
        (lambda: [3.0], "is float"),
    ],
    ids=["array", "empty", "numpy", "number"],
)
def test_what_cannot_be_kept_is_refused_where_it_is_given(kept: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ElasticJob.join().keep(kept())


def averages(job: Any, way: str) -> list[Any]:
    """`way` is how the script comes by its new average of the weights in each step."""
    net = mlp()
    params = net.collect_params()
    trainer = job.trainer(params, "sgd", {"learning_rate": 0.1})
    average = {name: p.data().copy() for name, p in params.items()}
    array = mx.nd.zeros(3)
    if way == "array":
        job.keep([array])
    else:
        average = job.keep(average)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH, name="first"):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
            if way == "array":
                array[:] += 1
            else:
                average.update({name: 0.5 * (average[name] + p.data()) for name, p in params.items()})
    return [array.asnumpy(), *(each.asnumpy() for each in average.values())]


@pytest.mark.parametrize("way", ["array", "filled"])
def test_t2_an_average_that_is_written_to_where_it_is_goes_with_the_job(way: str) -> None:
    """The list that an array was kept in may go, as the script has the array."""
    expected = averages(Plain(), way)
    all_close(Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(lambda job: averages(job, way)), expected)


def test_what_a_phase_kept_may_go_in_the_next() -> None:
    def script(job: Any) -> list[Any]:
        average = averages(job, "filled")
        net = mlp()
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        train(job, net, trainer, epochs=1, name="second")
        return [*average, *weights(net)]

    expected = script(Plain())
    all_close(Conductor({0: 2, 4: 3}, [], None, loops=2).run(script), expected)


def test_what_a_trainer_has_is_not_kept_a_second_time() -> None:
    job = ElasticJob.join()
    job.trainer((net := mlp()).collect_params(), "sgd")
    job.keep(net)
    with pytest.raises(ValueError, match=r"which a trainer has"):
        next(job.epochs(1, samples=SAMPLES, global_batch=BATCH))


def test_another_array_must_be_of_the_same_shape() -> None:
    holder = {"average": mx.nd.zeros((2, 3))}
    kept = KeptArrays(holder)
    holder["average"] = mx.nd.ones((2, 3))
    assert kept.arrays()[0][1][0] is holder["average"]
    holder["average"] = mx.nd.ones(3)
    with pytest.raises(ValueError, match=r"average.*\(3,\) float32"):
        kept.arrays()


def test_it_comes_before_the_epochs() -> None:
    job = ElasticJob.join()
    job.trainer((net := mlp()).collect_params(), "sgd")
    job.epochs(1, samples=SAMPLES, global_batch=BATCH)
    with pytest.raises(RuntimeError, match=r"job.keep\(\) within the loop"):
        job.keep({"weights": mx.nd.array(weights(net)[0])})


def normalised() -> Any:
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(5, in_units=4), mx.gluon.nn.BatchNorm(in_channels=5), mx.gluon.nn.Dense(3, in_units=5))
    net.initialize(mx.init.Xavier())
    return net


def norms(job: Any, given: Callable[[Any], Any], update: Callable[[Any, Any], None], every: str) -> list[Any]:
    net = normalised()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    average = job.keep(given(net))
    when = {"step": "after", "epoch": "ends"}[every]
    train(job, net, trainer, **{when: lambda _: update(net, average)})
    return [p.data().asnumpy() for p in net.collect_params().values() if p.grad_req != "null"]


def copied(net: Any) -> Any:
    return {name: p.data().copy() for name, p in net.collect_params().items()}


def averages_copies(net: Any, average: Any) -> None:
    for name, p in net.collect_params().items():
        average[name] = 0.8 * average[name] + 0.2 * p.data()


def averages_net(net: Any, average: Any) -> None:
    for p, kept in zip(net.collect_params().values(), average.collect_params().values(), strict=True):
        kept.set_data(0.8 * kept.data() + 0.2 * p.data())


@pytest.mark.parametrize("every", ["step", "epoch"])
@pytest.mark.parametrize(
    ("given", "update"), [(copied, averages_copies), (lambda _: normalised(), averages_net)], ids=["copies", "net"]
)
def test_t2_an_average_of_a_whole_net_may_have_running_statistics_in_it(
    given: Callable[[Any], Any], update: Callable[[Any, Any], None], every: str
) -> None:
    """Within an epoch they are each worker's own, as the net's are: it was told to have diverged."""
    results = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(lambda job: norms(job, given, update, every))
    assert results
    for result in results:
        for mine, theirs in zip(result, results[0], strict=True):
            assert np.isfinite(mine).all()
            np.testing.assert_array_equal(mine, theirs)


def test_an_averages_running_statistics_become_those_of_all_samples_at_a_boundary() -> None:
    kept = {
        "norm0_gamma": mx.nd.ones(2),
        "norm0_running_mean": mx.nd.array([1, 2]),
        "norm0_running_var": mx.nd.array([3, 4]),
    }
    state = state_of(kept)
    means, variances = state.statistics()
    assert (means.tolist(), variances.tolist()) == ([1, 2], [3, 4])
    state.set_statistics(means + 1, variances + 1)
    assert [each.asnumpy().tolist() for each in kept.values()] == [[1, 1], [2, 3], [4, 5]]
    assert [label for label, _ in state.sampled_checksums(START) if "keep" in label] == ["job.keep 0[norm0_gamma]"]
    other = state_of({name: mx.nd.zeros(2) for name in kept})
    other.install(state.pack(START))
    assert other.statistics()[0].tolist() == [2, 3], "a joiner has them"


def test_t2_a_net_may_be_copied_once_a_trainer_has_it() -> None:
    """As BYOL and target networks do: Gluon's parameters hold their trainer, and it the job."""

    def copies(job: Any) -> list[Any]:
        net = mlp()
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        target = copy.deepcopy(net)
        job.keep(target)
        for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(data()):
                with autograd.record():
                    loss = CROSS(net(x), y) + ((net(x) - target(x).detach()) ** 2).sum(axis=1)
                loss.backward()
                trainer.step(BATCH)
                averages_net(net, target)
        return weights(net, target)

    all_close(Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(copies), copies(Plain()))
