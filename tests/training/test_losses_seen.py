"""What counts as another loss: each that does is tried, which costs a few steps, and three are tried at most."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dyntrain.training.worker.loop.watched.losses_seen import MOST_COUNTS, VARIES, LossesSeen


def loss(*operators: str, arrays: int = 2) -> Any:
    nodes = [SimpleNamespace(op=each) for each in ("null",) * (arrays + 1) + operators]
    return SimpleNamespace(graph=SimpleNamespace(nodes=nodes, data=[at < arrays for at in range(len(nodes))]))


def after(*losses: Any) -> LossesSeen:
    """Each of a batch."""
    seen = LossesSeen()
    for each in losses:
        seen.another = False
        seen.look([each])
        seen.put_down(1)
    return seen


def test_the_first_batch_has_no_other_loss_however_many_it_has() -> None:
    seen = LossesSeen()
    seen.look([loss("dot"), loss("log", arrays=5)])
    assert not seen.another


def test_other_operators_or_more_arrays_make_another_loss() -> None:
    assert not after(loss("dot"), loss("dot", "dot")).another
    assert after(loss("dot"), loss("dot", "max")).another
    assert after(loss("dot"), loss("dot", arrays=4)).another
    assert not after(loss("dot"), loss("max"), loss("dot")).another


def test_a_loss_of_as_many_arrays_as_a_sequence_has_steps_is_another_one_twice_at_most() -> None:
    """Else three lengths would use up what there is for a loss that is another one."""
    lengths = [loss("dot", arrays=10 + each) for each in range(VARIES + 1)]
    assert after(*lengths[:VARIES]).another
    assert not after(*lengths).another
    assert after(*lengths, loss("dot", "max")).another


def test_the_batch_after_one_with_a_new_number_of_operators_is_looked_at_and_not_for_ever() -> None:
    seen = LossesSeen()
    assert [seen.put_down(number) for number in (7, 7, 8, 7)] == [True, False, True, False]
    assert not [number for number in range(100, 100 + 2 * MOST_COUNTS) if seen.put_down(number)][MOST_COUNTS - 2 :]
