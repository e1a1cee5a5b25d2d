"""What a script makes of its weights beside the job, followed from step to step: running averages, and weights of
before in a loss. In one process both are right; who joins begins with others, and a step that is void counts twice.

An array is an average where it is made of weights and of an array that has those of two steps in it already. So what is
made of weights is followed from operator to operator, as in `origins`, where nothing is recorded and as long as it has
a weight's shape: a norm that is printed, or how far weights went in an epoch, is none. By way of NumPy it is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

from mxnet import autograd  # isort: skip
from dyntrain.training.worker.loop.batch.here import here


class Made(NamedTuple):
    """Of weights, up to this step; `of_several`: of more than one step's."""

    step: int
    of_several: bool
    name: str  # of a weight


_trained: dict[int, str] = {}  # by ids: weights that trainers have and the script was given, their names
_made: dict[int, Made] = {}  # by ids of arrays
_kept: WeakKeyDictionary[Any, tuple[int, set[int]]] = WeakKeyDictionary()  # by loops: a step, what was kept then


def gave(param: Any, arrays: Sequence[Any]) -> None:
    """To the script, which may compute with them."""
    if hasattr(here, "loop") and not here.in_block and any(param._trainer is each for each in here.loop.trainers):
        for each in arrays:
            _trained[id(each)] = param.name
            _made.pop(id(each), None)  # MXNet makes other arrays of the old ones where `grad_req` changes


def any_given() -> bool:
    return bool(_trained)


def was_made(array: Any) -> bool:
    """Of weights, and as large."""
    return id(array) in _made


def forget(array: Any, trained: Callable[..., Any] = _trained.pop, made: Callable[..., Any] = _made.pop) -> None:
    """It is deleted, also at the interpreter's end, where a module's names may be gone."""
    trained(id(array), None)
    made(id(array), None)


def follow(inputs: Sequence[Any], outputs: Sequence[Any], into: bool) -> None:
    """`into`: the outputs were there before, and are written to."""
    if not _trained or here.in_block:
        return
    if autograd.is_recording():
        _look_for_before(inputs)
        return
    for made in outputs:
        if id(made) in _trained:
            continue
        of_weights = [each for each in inputs if id(each) in _trained or id(each) in _made]
        found = _of([each for each in of_weights if each.shape == made.shape], here.loop.position.step)
        if found is not None and into and _is_gradient(made):
            if found.of_several:
                _tell(found)
        elif found is not None:
            _made[id(made)] = found
        elif into:
            _made.pop(id(made), None)


def _look_for_before(inputs: Sequence[Any]) -> None:
    """Weights as they were at an earlier step, in what is differentiated."""
    for each in inputs if here.hand is not None else ():
        found = _made.get(id(each))
        if found is None or found.step == here.loop.position.step:
            continue
        if not _is_kept(each, here.loop.position.step):
            _tell(found)


def _tell(found: Made) -> None:
    if here.loop.follows:
        here.loop.findings.find("DT503", name=found.name)


def _is_gradient(array: Any) -> bool:
    """To which a decay is added by hand: the next backward pass writes it anew."""
    return here.hand is not None and here.hand.is_gradient(array, here.loop.trainers)


def _of(inputs: Sequence[Any], step: int) -> Made | None:
    """What is made of these. Of a running average of the script's own it is told."""
    now = [Made(step, False, _trained[id(each)]) for each in inputs if id(each) in _trained]
    found = [_made[id(each)] for each in inputs if id(each) in _made and not _is_kept(each, step)]
    before = [each for each in found if each.step < step]
    now += [each for each in found if each.step == step]
    if not (before and now):
        return max([*before, *now], key=lambda each: each.of_several, default=None)
    if any(each.of_several for each in before):
        here.loop.findings.find("DT502", name=now[0].name)
    return Made(step, True, now[0].name)


def _is_kept(array: Any, step: int) -> bool:
    """As the step began: what was made in it is no average yet."""
    at, ids = _kept.get(here.loop, (-1, set[int]()))
    if at != step:
        ids = here.loop.state.kept.ids
        _kept[here.loop] = step, ids
    return id(array) in ids
