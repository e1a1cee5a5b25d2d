"""What a worker that joined has otherwise in its script's variables.

What would break for a user: an average that is saved in the end and was begun anew by who joined is called right; a
right script is refused for what each worker has of its own samples; a cause is not named.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest

import mxnet as mx  # isort: skip
from dyntrain.training.trial.differences import END, HELD, NAMES, Arrays, Key, compare, relative_differences
from dyntrain.training.trial.variables import Variables, names_text, saved_differences
from dyntrain.training.worker.loop import held as room
from dyntrain.training.worker.loop.held import MOST_ITEMS, MOST_NUMBERS, describe_arrays
from idioms import mlp
from mxnet import gluon

STEPS, JOINS = 8, 3  # after the third step there are two workers


def run(of: Callable[[int], dict[str, Any]], joined: int = 0) -> dict[Key, Arrays]:
    """`of`: what a worker has where a step begins, of how many steps it has gone through."""
    states: dict[Key, Arrays] = {}
    for step in range(joined + 1, STEPS + 1):
        variables = {HELD + name: np.asarray(each, float) for name, each in of(step - 1 - joined).items()}
        states[1, step] = {"p0 w": np.ones(3), **variables, "names held": np.array(["x", "average", "count", "net"])}
    variables = {END + name: np.asarray(each, float) for name, each in of(STEPS - joined).items()}
    states[1, STEPS] |= {**variables, "names end": states[1, STEPS]["names held"]}
    return states


def among(was: dict[Key, Arrays], joined: dict[Key, Arrays]) -> dict[Key, list[Arrays]]:
    return {key: [each, *([joined[key]] if key in joined else [])] for key, each in was.items()}


def anew(of: Callable[[int], dict[str, Any]], shares: Callable[[int], dict[str, Any]] | None = None) -> Variables:
    """One process has `of`; over two workers both have `shares` of samples, and who joins begins anew."""
    one = run(of)
    return Variables(one, run(of), among(run(shares or of), run(shares or of, JOINS)))


def average(steps: int) -> dict[str, Any]:
    return {"average['a']": np.arange(4.0) * steps, "average['b']": [1.0, steps], "count": steps, "net.w": [3.0, 2.0]}


def test_what_goes_on_from_step_to_step_is_another_one_on_who_joins_and_arrays_come_first() -> None:
    seen = anew(average)
    assert seen.differing_variables((1, JOINS)) == [], "there was one worker"
    assert seen.differing_variables((1, JOINS + 1)) == ["average['a']", "average['b']", "count"]


def test_an_array_that_is_another_one_in_the_end_is_told_and_a_count_is_not() -> None:
    assert anew(average).arrays_differing_at_end() == ["average['a']", "average['b']"]


def test_what_is_of_each_workers_own_samples_is_none_of_these() -> None:
    """Losses and batches: another one on all of several workers; on the first, until the step is made, the one of when
    it was alone.
    """
    seen = anew(lambda steps: {"x": [steps, 2.0]}, lambda steps: {"x": [steps, 2.0 if steps <= JOINS else 1.0]})
    assert seen.arrays_differing_at_end() == []


def test_what_is_made_anew_and_rounded_otherwise_is_the_same() -> None:
    near = lambda by: lambda steps: {"average": [1.0 + by, 2.0]}  # noqa: E731
    one, nudged = run(near(0.0)), run(near(1e-6))
    seen = Variables(one, nudged, among(run(near(0.0)), run(near(5e-6), JOINS)))
    assert (seen.differing_variables((1, STEPS)), seen.arrays_differing_at_end()) == ([], [])


def test_a_variable_that_has_nothing_yet_is_told_and_one_that_is_not_set_is_not() -> None:
    def of(steps: int) -> dict[str, Any]:
        return {"average[0]": [2.0, 3.0], "loss": [4.0, 5.0]} if steps else {}

    assert anew(of).differing_variables((1, STEPS)) == ["average[0]"]


def test_what_is_saved_is_compared_by_files() -> None:
    """A worker that joined is the one that saves in the end."""
    one = {"net w": np.ones(3), "average.params a": np.ones(3), "average.params n": np.ones(1), "log x": np.ones(2)}
    nudged = {name: array * (1 + 1e-7) for name, array in one.items()}
    there = {**nudged, "average.params a": np.ones(3) * 0.9, "average.params n": np.zeros(1)}
    del there["log x"]
    differing = saved_differences(one, nudged, there)
    assert list(differing) == ["average.params"]
    assert differing["average.params"] == pytest.approx(0.1)
    assert saved_differences(one, nudged, nudged) == {}


def test_variables_are_no_weights() -> None:
    runs = [run(average), run(average), among(run(average), run(average, JOINS))]
    assert compare(*runs).divergence is None  # type: ignore[arg-type]
    assert [*relative_differences(runs[0][1, 5], runs[1][1, 5])] == ["p0 w"]  # type: ignore[arg-type, index]
    assert NAMES + "held" in runs[0][1, 5]  # type: ignore[index]


def test_several_of_one_container_are_told_by_its_name() -> None:
    names = ["mean.dense0_weight", "mean.dense0_bias", "own[0]", "state.step", "count", "best"]
    assert names_text(names) == "`mean`, `own[0]`, `state.step`, `count` and 1 more"


# ---- in the script's process


def names_of(variables: dict[str, Any]) -> list[str]:
    return [name for name in variables if re.match(r"it\b", name)]


class Meter:
    def __init__(self) -> None:
        self.calls, self.kept = 3, {"a": mx.nd.ones(2)}


@pytest.mark.parametrize(
    ("it", "known"),
    [
        (mx.nd.ones(2), ["it"]),
        (np.ones(2), ["it"]),
        (0.5, ["it"]),
        ({"w": mx.nd.ones(2), 3: 4}, ["it['w']", "it[3]"]),
        ([mx.nd.ones(2), None, "text"], ["it[0]"]),
        (Meter(), ["it.calls", "it.kept['a']"]),
        (gluon.Parameter("never", shape=(2,)), []),
        (random.Random(3), ["it"]),
        (np.random.default_rng(3), ["it"]),
        (np.zeros(MOST_NUMBERS + 1), []),
        (list(range(MOST_ITEMS + 1)), []),
        (SimpleNamespace(of_a_library=1), []),
        ("text", []),
    ],
)
def test_variables_are_known_by_the_names_that_people_write(it: Any, known: list[str]) -> None:
    variables, names = describe_arrays(lambda array: array)
    assert names_of(variables) == known
    assert "it" in names


def test_a_nets_parameters_are_its() -> None:
    it = mlp()
    assert names_of(describe_arrays(lambda array: array)[0]) == [f"it.{name}" for name in it.collect_params()]
    assert names_of(describe_arrays(lambda array: array, it.collect_params().values())[0]) == []


def test_a_generator_is_told_by_where_it_stands() -> None:
    it = random.Random(3)
    before = describe_arrays(float)[0]["it"]
    assert describe_arrays(float)[0]["it"] == before
    it.random()
    assert describe_arrays(float)[0]["it"] != before


def test_what_goes_round_ends() -> None:
    it: list[Any] = [1]
    it.append(it)
    assert names_of(describe_arrays(lambda array: array)[0]) == ["it[0]"]


def test_variables_of_libraries_are_none_of_the_scripts() -> None:
    assert not any(
        room._is_of_script(module) for module in ("mxnet.gluon.trainer", "threading", "pytest", "dyntrain.training")
    )
    assert room._is_of_script(__name__)
