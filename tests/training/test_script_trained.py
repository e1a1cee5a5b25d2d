"""Parameters that a script freezes and frees at any step: workers that sum different ones would wait for each other for
ever.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import ConductedMembership, Conductor, Death, Plain
from dyntrain.training.worker.loop.agreed.rates import UnequalRates
from dyntrain.training.worker.loop.agreed.trained import known_parameters, store_trained_parameters
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, weights
from mxnet import autograd
from test_script_idioms import all_close

Set = Callable[[Any, int], object]  # told the net, and how many batches there were


def trained(job: Any, sets: Set, kept: bool, seen: list[int] | None = None) -> list[Any]:
    """`kept`: in the job's memory how many batches there were, in place of a variable of the script's."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "adam", {"learning_rate": 0.03})
    memory, own = job.memory(batches=0), 0
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            sets(net, memory.batches if kept else own)
            memory.batches += 1
            own += 1
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


def set_layer(layer: Any, trains: bool) -> None:
    layer.collect_params().setattr("grad_req", "write" if trains else "null")


def for_a_while(net: Any, batches: int) -> None:
    set_layer(net[0], not 3 <= batches < 9)


def by_turns(net: Any, batches: int) -> None:
    for i in (0, 1):
        set_layer(net[i], batches % 2 == i)


def now_and_then(net: Any, batches: int) -> None:
    set_layer(net[1], batches % 3 == 0)


WAYS = {"for a while": for_a_while, "by turns": by_turns, "now and then": now_and_then}
DEATHS = {
    "none": [],
    "before the first sum": [Death(5, 1), Death(9, 0)],
    "between the sums": [Death(4, 1, 1), Death(6, 1, 1), Death(9, 0, 1)],
    "after the sums": [Death(5, 1, 0, "applied"), Death(9, 1, 1, "applied")],
}


@pytest.mark.parametrize("deaths", DEATHS.values(), ids=DEATHS)
@pytest.mark.parametrize("sets", WAYS.values(), ids=WAYS)
def test_what_trains_may_change_at_any_step(sets: Set, deaths: list[Death]) -> None:
    conductor = Conductor({0: 1, 4: 3, 8: 2}, deaths, 1)
    all_close(conductor.run(lambda job: trained(job, sets, True)), trained(Plain(), sets, True))
    assert conductor._died or not deaths, "not every way has a second sum in each of these steps"


def test_the_first_step_after_a_change_sums_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A joiner has heard from the others' state what all sum; to ask for it would make the links wait once more."""
    sums, exchange = Counter[tuple[int, int, int]](), ConductedMembership.exchange

    def counted(self: ConductedMembership, *args: Any) -> bool:
        sums[self.generation, self._at.step, self.kvstore.rank] += 1
        return exchange(self, *args)

    monkeypatch.setattr(ConductedMembership, "exchange", counted)
    conductor = Conductor({0: 1, 4: 3, 8: 2}, [Death(6, 1)], 1)
    conductor.run(lambda job: trained(job, lambda net, batches: None, True))
    assert conductor.reformed > 3
    assert {step for (_, step, _), times in sums.items() if times > 1} == {0}


def adds_up(net: Any, batches: int) -> None:
    net[1].collect_params().setattr("grad_req", "add" if batches > 5 else "write")


@pytest.mark.parametrize(
    "sets",
    [
        pytest.param(lambda net, batches: set_layer(net[0], batches < 6), id="frozen-later"),
        pytest.param(lambda net, batches: set_layer(net[0], batches > 5), id="freed-later"),
        pytest.param(by_turns, id="by-turns"),
        pytest.param(adds_up, id="added-up-later"),
    ],
)
def test_what_trains_by_a_counter_of_the_scripts_own_is_refused_where_it_differs(sets: Set) -> None:
    conductor = Conductor({0: 2, 3: 3}, segment_steps=1)
    with pytest.raises(UnequalRates, match=r"which parameters train \(grad_req\) on \d of 3 workers: .*job\.memory"):
        conductor.run(lambda job: trained(job, sets, False))
    assert len({str(error) for error in conductor.errors}) == 1, "the same words on every worker"


def test_what_stays_as_it_was_is_summed_at_once() -> None:
    """A second sum in each step would wait for the links once more."""
    own: dict[str, Any] = {}
    some, all_of_them = frozenset({0}), frozenset({0, 1})
    assert known_parameters(own, 0) == frozenset(), "where a job begins nobody knows"
    for now, then in [
        (all_of_them, all_of_them),
        (some, some),
        (some, some),
        (all_of_them, some),
        (all_of_them, all_of_them),
    ]:
        store_trained_parameters(own, 0, now)
        assert known_parameters(json.loads(json.dumps(own)), 0) == then, "also by a joiner, who receives it"
    assert known_parameters(own, 1) == frozenset(), "each trainer has its own"
