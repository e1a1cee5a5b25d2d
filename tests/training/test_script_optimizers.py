"""What optimizers of somebody's own keep beside their states, made when it is first needed: who joins has it too."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.worker.state.attributes import capture, restore
from idioms import trained_with
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


MADE = {
    "slow weights": lambda: Lookahead(learning_rate=0.1, momentum=0.5),
    "the last gradients": lambda: Recent(learning_rate=0.1),
    "another optimizer": lambda: Wrapped(mx.optimizer.Adam(learning_rate=0.03), learning_rate=0.03),
}


@pytest.mark.parametrize("kind", list(MADE))
def test_t2_what_an_optimizer_of_somebodys_own_makes_as_it_goes_reaches_who_joins(kind: str) -> None:
    def script(job: Any) -> Any:
        return trained_with(job, MADE[kind]())

    expected = script(Plain())
    first = Conductor({0: 1, 2: 3, 6: 2}, [Death(5, 1)], 1)
    all_close(first.run(script), expected)
    block = next(block for at, block in first.blocks.items() if at.step == 6)
    all_close(Conductor({0: 2}, segment_steps=3, start=block).run(script), expected)


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
