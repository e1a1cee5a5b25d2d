"""Numbers of Python's by which a loss is divided: in one process it does not matter whether a script counts the batch
or was told its size. On several workers `len(x)` is of a share, and the sum over them another loss, without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.controller.contract.messages import MOST_WORKERS
from dyntrain.training.worker.loop.agreed.rates import UnequalRates
from dyntrain.training.worker.loop.record.fingerprints import (
    FINGERPRINT_SIZE,
    fingerprint,
    fingerprints_agree,
    place_of,
)
from hypothesis import given
from hypothesis import strategies as st
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, numbers, weights
from mxnet import autograd, gluon
from test_script_idioms import all_close

import mxnet as mx  # isort: skip

Loss = Callable[[Any, Any, Any], Any]  # of (the job's epoch, losses of the samples, labels)
BEGINS = {"with three": {0: 3}, "alone": {0: 1, 4: 3}}  # 6 samples are 2 for each of three, and for each of the first


def script(job: Any, loss_of: Loss, step: float = BATCH, accumulate: int = 1, **options: Any) -> list[Any]:
    net = mlp()
    trainer = job.trainer(
        net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, accumulate=accumulate, **options
    )
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = loss_of(epoch, CROSS(net(x), y), y)
            loss.backward()
            if epoch.update_due:
                trainer.step(step)
    return weights(net)


def count(y: Any) -> Any:
    """As before the net is called: nothing that is differentiated has a part in it."""
    return mx.nd.array(y.asnumpy() >= 0).sum()


def drawn(epoch: Any, losses: Any, y: Any) -> Any:
    """A mixup whose lambda each worker draws for itself."""
    share = np.random.beta(0.2, 0.2)
    return share * losses + (1 - share) * losses[::-1]


COUNTED: dict[str, Loss] = {
    "by length": lambda epoch, losses, y: losses.sum() / len(y),
    "times inverse": lambda epoch, losses, y: mx.nd.add_n(*[(losses * (1 / len(y))).sum() * 0.5] * 2),
    # GluonNLP's dependency parser
    "by what is counted": lambda epoch, losses, y: losses.sum() / int((y >= 0).sum().asscalar()),
    "each by length": lambda epoch, losses, y: losses / len(y),
    # What is counted stays an array, which MXNet's record knows by name alone
    "by an array": lambda epoch, losses, y: losses / count(y),
    "times an array": lambda epoch, losses, y: mx.nd.broadcast_mul(1 / count(y), losses),
    "a sum times an array": lambda epoch, losses, y: losses.sum() * (1 / count(y)),
    "drawn": drawn,
}


@pytest.mark.parametrize("plan", BEGINS.values(), ids=BEGINS.keys())
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("name", COUNTED)
def test_a_number_that_each_worker_counts_in_its_share_is_refused_before_the_first_step_of_several(
    name: str, plan: dict[int, int], accumulate: int
) -> None:
    with pytest.raises(UnequalRates, match=r"DT412: .* on \d of 3.*epoch\.sum"):
        Conductor(plan, [], 4).run(lambda job: script(job, COUNTED[name], accumulate=accumulate))


@pytest.mark.parametrize(
    ("loss_of", "loss", "code"),
    [
        (lambda epoch, losses, y: losses.mean() / len(y), "mean", "DT411"),
        (COUNTED["by length"], "own", "DT412"),
        (COUNTED["each by length"], "own", "DT412"),
    ],
)
def test_a_count_of_the_share_is_refused_whatever_was_told(loss_of: Loss, loss: str, code: str) -> None:
    with pytest.raises(UnequalRates, match=code):
        Conductor({0: 3}, [], 4).run(lambda job: script(job, loss_of, 1, loss=loss))


FACTORS = st.sets(st.tuples(st.sampled_from(["pick", "smooth_l1"]), st.integers(1, 9).map(str)), max_size=3)


@given(st.lists(FACTORS, min_size=2, max_size=MOST_WORKERS), st.integers(0, 1000))
def test_opinions_are_one_where_some_worker_has_what_all_the_others_have(
    factors: list[set[tuple[str, str]]], step: int
) -> None:
    total = np.sum([np.array(fingerprint(each, step), dtype=np.float32) for each in factors], axis=0, dtype=np.float32)
    places = [{place_of(one, step) for one in each} for each in factors]
    assert fingerprints_agree(total.tolist()) == any(each >= set().union(*places) for each in places)


def test_what_is_multiplied_by_0_is_nothing_that_one_has_an_opinion_on() -> None:
    assert fingerprint({("pick", "0")}, 1) == fingerprint((), 1) == [0.0] * FINGERPRINT_SIZE
    assert (
        fingerprint({("pick", "0"), ("pick", "0.33333")}, 1)
        == fingerprint({("pick", "0.33333")}, 1)
        != fingerprint((), 1)
    )


def test_two_numbers_that_look_alike_in_one_step_do_not_in_the_next_ones() -> None:
    """Else a script that divides by 7 on one worker, and by 8 on another, might never be found."""
    numbers = [("pick", str(number)) for number in range(1, 200)]
    alike = [(one, other) for one, other in combinations(numbers, 2) if place_of(one, 0) == place_of(other, 0)]
    assert alike
    assert not [
        (one, other) for one, other in alike if all(place_of(one, step) == place_of(other, step) for step in (1, 2, 4))
    ]


def boxes(job: Any, choose: Callable[[Any], Any] = lambda y: y == 0) -> list[Any]:
    """A detector's: places of one kind have a term of their own, and many a share has none of them."""
    net, places = mlp(), mlp(1, seed=4)
    both = [*net.collect_params().values(), *places.collect_params().values()]
    trainer = job.trainer(both, "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            chosen = np.flatnonzero(choose(y.asnumpy()))
            with autograd.record():
                loss = 2 * CROSS(net(x), y).sum() + 0 * places(x).sum()
                if len(chosen):
                    some = mx.nd.array(chosen)
                    loss = loss + 0.5 * (CROSS(net(x.take(some)), y.take(some)).sum() + places(x.take(some)).sum())
            loss.backward()
            trainer.step(BATCH)
    return weights(net, places)


@pytest.mark.parametrize("plan", BEGINS.values(), ids=BEGINS.keys())
def test_t2_a_share_that_lacks_a_term_of_the_loss_is_no_reason_to_refuse(plan: dict[int, int]) -> None:
    all_close(Conductor(plan, [Death(5, 1)], 1).run(boxes), boxes(Plain()))


def rare(epoch: Any, losses: Any, y: Any) -> Any:
    """Positives that are missing in the first batches, so that all shares count 1 there."""
    positives = int((y == 0).sum().asscalar()) if epoch.step_number > 2 else 0
    return losses.sum() / max(1, positives)


def test_a_count_that_parts_later_is_found_in_one_of_the_steps_that_follow() -> None:
    with pytest.raises(UnequalRates, match="DT412"):
        Conductor({0: 3}, [], None).run(lambda job: script(job, rare))


@pytest.mark.parametrize("workers", [BATCH, BATCH + 1, 2 * BATCH])
def test_shares_of_one_sample_and_none_are_told_from_a_number_too(workers: int) -> None:
    with pytest.raises(UnequalRates, match="DT412"):
        Conductor({0: workers}, [], None).run(lambda job: script(job, COUNTED["by length"]))
    all_close(Conductor({0: workers}, [], None).run(lambda job: script(job, halved)), script(Plain(), halved))


def halved_by_an_array(epoch: Any, losses: Any, y: Any) -> Any:
    return losses * mx.nd.array([0.5]) / mx.nd.array([4.0])


def weighed(epoch: Any, losses: Any, y: Any) -> Any:
    """Of a share of one sample, this is an array of one number as a count is."""
    return losses * mx.nd.array(1 + y.asnumpy()) / mx.nd.array(4 - y.asnumpy())


@pytest.mark.parametrize("workers", [4, BATCH, BATCH + 1])
@pytest.mark.parametrize("loss_of", [weighed, halved_by_an_array])
def test_t2_weights_of_the_samples_are_no_count_where_a_share_is_of_one_sample(loss_of: Loss, workers: int) -> None:
    all_close(Conductor({0: workers}, [], None).run(lambda job: script(job, loss_of)), script(Plain(), loss_of))


def given_by_length(job: Any) -> list[Any]:
    """The division stands in what backward() is given."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y).sum()
            loss.backward(mx.nd.array([1 / len(y)]))
            trainer.step(BATCH)
    return weights(net)


def test_a_count_that_backward_is_given_is_found() -> None:
    with pytest.raises(UnequalRates, match="DT412"):
        Conductor({0: 3}, [], None).run(given_by_length)


def in_numpys_ways(job: Any) -> list[Any]:
    """d2l's scripts. Its arrays of one number have other methods."""
    with mx.util.np_shape(True), mx.util.np_array(True):
        net = gluon.nn.Dense(3, in_units=4)
        net.initialize()
        net.weight.set_data(mx.np.array(numbers(3, 4)))
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(data()):
                with autograd.record():
                    loss = CROSS(net(x.as_np_ndarray()), y.as_np_ndarray()).sum() * mx.np.array(0.5)
                loss.backward(mx.np.array(0.25))
                trainer.step(mx.np.array(BATCH))
        return weights(net)


def test_t2_arrays_of_numpys_kind_say_the_same() -> None:
    all_close(Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(in_numpys_ways), in_numpys_ways(Plain()))


def there_and_back(epoch: Any, losses: Any, y: Any) -> Any:
    """SSD's library divides by the positives, the script multiplies by them again."""
    return (losses.sum() / len(y)) * len(y)


def there_and_back_by_arrays(epoch: Any, losses: Any, y: Any) -> Any:
    counted = count(y)
    return losses / counted * counted


@pytest.mark.parametrize("loss_of", [there_and_back, there_and_back_by_arrays])
def test_t2_what_is_divided_and_multiplied_again_is_no_count(loss_of: Loss) -> None:
    all_close(
        Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(lambda job: script(job, loss_of)),
        script(Plain(), loss_of),
    )


def halved(epoch: Any, losses: Any, y: Any) -> Any:
    return (losses.sum() / 2 + losses.sum() * 4) / 4.5


@pytest.mark.parametrize(
    ("loss_of", "step", "options"),
    [
        (halved, BATCH, {}),
        (lambda epoch, losses, y: losses * ((1 + epoch) / 10), BATCH, {}),
        (halved_by_an_array, BATCH, {}),
        (lambda epoch, losses, y: losses.mean() * 0.25, 1, {"loss": "mean"}),
    ],
)
def test_t2_constants_and_what_follows_from_the_epoch_train_as_in_one_process(
    loss_of: Loss, step: float, options: dict[str, Any]
) -> None:
    conductor = Conductor({0: 1, 4: 3, 8: 2}, [Death(4, 1), Death(8, 0)], 1)
    all_close(
        conductor.run(lambda job: script(job, loss_of, step, **options)), script(Plain(), loss_of, step, **options)
    )


WITHIN: dict[str, Callable[..., Any]] = {
    "temperature": lambda count, losses, net, x, y: CROSS(net(x) / (5 - count / 4), y),
    "exponent": lambda count, losses, net, x, y: losses ** (1 + count / 8),
    "margin": lambda count, losses, net, x, y: (net(x).sum(axis=1) - 0.1 * count).relu(),
    "bound": lambda count, losses, net, x, y: CROSS(net(x).clip(-1 - count, 1 + count), y),
}


def counting(job: Any, loss_of: Any, own: bool) -> list[Any]:
    """`own`: the script's own counter, which begins anew on a worker that joins."""
    net, count = mlp(), 0
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            now = count if own or isinstance(job, Plain) else epoch.step_number
            with autograd.record():
                loss = loss_of(now, CROSS(net(x), y), net, x, y)
            loss.backward()
            trainer.step(BATCH)
            count += 1
    return weights(net)


@pytest.mark.parametrize("loss_of", WITHIN.values(), ids=WITHIN)
def test_t2_numbers_within_the_loss_that_are_others_on_a_worker_that_joins_are_refused(loss_of: Any) -> None:
    """They are no factors of it."""
    with pytest.raises(UnequalRates, match="DT412"):
        Conductor({0: 1, 4: 3}, [], 1).run(lambda job: counting(job, loss_of, own=True))
    conductor = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1)
    all_close(conductor.run(lambda job: counting(job, loss_of, own=False)), counting(Plain(), loss_of, own=True))


def one_by_one(job: Any, **options: Any) -> list[Any]:
    """Sentences of a tree-LSTM: a loss is divided by the words of its own sample."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, **options)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                losses = [
                    CROSS(net(x[i : i + 1]), y[i : i + 1]).sum() / (1 + int(y[i].asscalar())) for i in range(len(y))
                ]
            autograd.backward(losses)
            trainer.step(BATCH)
    return weights(net)


def test_t2_what_each_sample_is_divided_by_is_its_own_where_losses_are_said_to_be_of_one() -> None:
    conductor = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1)
    all_close(conductor.run(lambda job: one_by_one(job, loss="sum")), one_by_one(Plain()))


def two_before_either_steps(job: Any, counts: int, first: bool = False) -> list[Any]:
    """Of the trainers, the first one's losses are of one sample each; `counts`: of which of them a share is counted."""
    nets, trainers = [mlp(), mlp(seed=4)], list[Any]()
    for which, net in enumerate(nets):
        options = {} if which else {"loss": "sum"}
        trainers.append(job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, **options))
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            losses = []
            for which, net in enumerate(nets):
                with autograd.record():
                    loss = CROSS(net(x.copy()), y.copy())
                    losses.append(loss.sum() / len(y) if which == counts else loss)
            for loss in losses:
                loss.backward()
            for trainer in trainers[:: 1 if first else -1]:
                trainer.step(BATCH)
    return weights(*nets)


@pytest.mark.parametrize("first", [True, False])
def test_each_trainer_is_asked_for_the_numbers_of_its_own_losses(first: bool) -> None:
    """What the first one was told is believed, and says nothing of the second one's."""
    with pytest.raises(UnequalRates, match=r"DT412: .*\(trainer 1\)"):
        Conductor({0: 3}, [], None).run(lambda job: two_before_either_steps(job, counts=1, first=first))
    Conductor({0: 3}, [], None).run(lambda job: two_before_either_steps(job, counts=0, first=first))


BY = {
    "nd.broadcast_mul": lambda losses, one: mx.nd.broadcast_mul(losses, one),
    "nd.elemwise_mul": lambda losses, one: mx.nd.elemwise_mul(losses.sum(), 1 / one),
    "of an array": lambda losses, one: losses / one,
    "a keyword": lambda losses, one: mx.nd.broadcast_div(lhs=losses, rhs=one),
    "np": lambda losses, one: losses.as_np_ndarray() / one.as_np_ndarray(),
    "np.multiply": lambda losses, one: mx.np.multiply(one.as_np_ndarray(), losses.as_np_ndarray()),
}


@pytest.mark.parametrize("way", BY)
def test_an_array_of_one_number_is_seen_whichever_way_a_script_goes(way: str) -> None:
    with pytest.raises(UnequalRates, match="DT412"):
        Conductor({0: 3}, [], 2).run(lambda job: script(job, lambda _, losses, y: BY[way](losses, count(y))))
