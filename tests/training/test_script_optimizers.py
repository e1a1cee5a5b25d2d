"""What optimizers of somebody's own keep beside their states, made when it is first needed: who joins has it too."""

from __future__ import annotations

import pickle
from collections import defaultdict, deque
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.protocol.messages import START
from dyntrain.training.worker.state.attributes import capture, restore
from dyntrain.training.worker.state.training_state import TrainingState
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, numbers, trained_with
from mxnet import autograd
from test_script_idioms import all_close

import mxnet as mx  # isort: skip


class Lookahead(mx.optimizer.SGD):
    """Zhang et al., arXiv 1907.08610: slow weights go half of the way to the fast ones after each two updates."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.aggregate_num = 0  # one weight at a time
        self.slow: dict[tuple[str, int], Any] = {}
        self.seen: dict[int, int] = defaultdict(int)

    def update_multi_precision(self, index: int, weight: Any, grad: Any, state: Any) -> None:
        slow = self.slow.setdefault(("slow", index), weight.copy())
        super().update_multi_precision(index, weight, grad, state)
        self.seen[index] += 1
        if self.seen[index] % 2 == 0:
            slow += 0.5 * (weight - slow)
            slow.copyto(weight)


class Recent(mx.optimizer.SGD):
    """Steps along the mean of the last three gradients."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.aggregate_num = 0  # one weight at a time
        self.recent: list[Any] = [deque(maxlen=3) for _ in range(4)]

    def update_multi_precision(self, index: int, weight: Any, grad: Any, state: Any) -> None:
        self.recent[index].append(grad.copy())
        mean = mx.nd.add_n(*self.recent[index]) / len(self.recent[index])
        super().update_multi_precision(index, weight, mean, state)


class Wrapped(mx.optimizer.Optimizer):
    """Another's steps, by a wrapper that looks after the counts of both."""

    def __init__(self, inner: Any, **options: Any) -> None:
        super().__init__(**options)
        self.inner = inner

    def create_state(self, index: int, weight: Any) -> Any:
        return self.inner.create_state(index, weight)

    def update(self, index: int, weight: Any, grad: Any, state: Any) -> None:
        self.inner.rescale_grad = self.rescale_grad
        self._update_count(index)
        self.inner.update(index, weight, grad, state)


MAKERS = {
    "slow weights": lambda: Lookahead(learning_rate=0.1, momentum=0.5),
    "the last gradients": lambda: Recent(learning_rate=0.1),
    "another optimizer": lambda: Wrapped(mx.optimizer.Adam(learning_rate=0.03), learning_rate=0.03),
}


@pytest.mark.parametrize("kind", list(MAKERS))
def test_t2_what_an_optimizer_of_somebodys_own_makes_as_it_goes_reaches_who_joins(kind: str) -> None:
    def script(job: Any) -> Any:
        return trained_with(job, MAKERS[kind]())

    expected = script(Plain())
    first = Conductor({0: 1, 2: 3, 6: 2}, [Death(5, 1)], 1)
    all_close(first.run(script), expected)
    block = next(block for at, block in first.blocks.items() if at.step == 6)
    all_close(Conductor({0: 2}, segment_steps=3, start=block).run(script), expected)


def half(job: Any, how: str) -> list[Any]:
    """Weights in float16, of which the optimizer keeps copies in float32."""
    weight = mx.gluon.Parameter("weight", shape=(4, 3), dtype="float16", init=mx.init.One())
    weight.initialize()
    options = {"learning_rate": 0.1, "multi_precision": True}
    first = job.trainer([weight], "adam", options)
    second = first if how == "loaded" else job.trainer([weight], "sgd", {**options, "momentum": 0.9})
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        if how == "loaded" and epoch == 0 and not epoch.resumed:
            weight.set_data(mx.nd.array(numbers(4, 3, seed=3)).astype("float16"))
        for x, y in epoch.batches(data()):
            with autograd.record():
                product = (x.astype("float16").expand_dims(2) * weight.data()).sum(axis=1)
                loss = CROSS(product.astype("float32"), y)
            loss.backward()
            (first if epoch == 0 else second).step(BATCH)
    return [weight.data().asnumpy().astype("float32")]


@pytest.mark.parametrize("how", ["loaded", "another optimizer"])
def test_t2_copies_of_weights_are_made_of_those_that_the_first_update_finds(how: str) -> None:
    """Pretrained weights that are set where the first epoch begins, or what another trainer has trained them to."""
    expected = half(Plain(), how)
    for changes in ([{0: 2}, [], None], [{0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1], [{0: 2, 2: 3}, [Death(0, 1)], 1]):
        results = Conductor(*changes).run(lambda job: half(job, how))
        assert results
        for (result,) in results:
            np.testing.assert_allclose(result, expected[0], atol=2e-3)  # two steps of float16 there


def test_states_that_are_loaded_before_their_first_update_stay_what_they_are() -> None:
    def states_of(trainer: Any) -> list[Any]:
        return [state.asnumpy().tolist() for state in trainer._updaters[0].states.values()]

    net = mlp()
    trainer = ElasticJob.join().trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    state = TrainingState(net, trainer)
    assert len(state.optimizer_states.untouched_state_numbers) == 4
    updater = trainer._updaters[0]
    updater.set_states(pickle.dumps({i: mx.nd.ones_like(each) for i, each in updater.states.items()}))
    assert state.optimizer_states.untouched_state_numbers == []
    loaded = states_of(trainer)
    other = mlp()
    joiner = ElasticJob.join().trainer(other.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    received = TrainingState(other, joiner)
    received.install(state.pack(START))
    for one, each in ((trainer, state), (joiner, received)):
        for param in one._params:
            param.list_data()[0]._fresh_grad = True
        each.optimizer_states.recreate_unused(one)
        assert states_of(one) == loaded


def test_dictionaries_stay_those_that_others_hold_and_of_their_kind() -> None:
    class Owner:
        def __init__(self) -> None:
            self.counts: dict[Any, int] = defaultdict(int)
            self.all = {0: self.counts}

    one, other = Owner(), Owner()
    one.counts[3], one.counts["a", 1] = 2, 5
    restore(other, capture(one))
    assert other.counts is other.all[0]
    assert other.counts == {3: 2, ("a", 1): 5}
    assert other.counts["unseen"] == 0
