"""From where on two runs of a script are further apart than rounding makes them.

What would break for a user: a right script that is told to be wrong, or a wrong one that is told to be right.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from dyntrain.training.trial.differences import (
    DRAWS,
    Arrays,
    Key,
    compare,
    draws_match,
    first_divergence,
    relative_differences,
)
from dyntrain.training.trial.processes import EndedRun
from dyntrain.training.trial.results import refusal_reason, script_error
from dyntrain.training.trial.verdict import (
    RunCounts,
    Verdict,
    findings,
    number_text,
    verdict_of_comparison,
    verdict_on_refusal,
    verdict_on_rerun,
    verdict_on_stop,
    with_findings,
    with_script_error,
)
from dyntrain.training.trial_files import Order
from hypothesis import given
from hypothesis import strategies as st

W, B, G = "p0 dense0_weight", "p1 dense0_bias", "gradient 0.0 dense0_weight"
STEPS = 6
COURSE = RunCounts(steps=STEPS, changes=4, kills=1, most=3)


def series(
    rounding: float = 0.0, seed: int = 0, wrong_from: int = 99, by: float = 0.0, growth: float = 1.0
) -> dict[Key, Arrays]:
    """Of a run whose weights are `rounding` apart from those of another one."""
    states: dict[Key, Arrays] = {}
    noise = np.random.default_rng(seed)
    for step in range(STEPS + 1):
        rng = np.random.default_rng([5, step])
        arrays = {W: rng.normal(size=40), B: rng.normal(size=4), G: rng.normal(size=40)}
        near = {
            name: array * (1 + rounding * growth**step * noise.choice([-1, 1], array.shape))
            for name, array in arrays.items()
        }
        if step >= wrong_from:
            near[G] = near[G] * (1 + by)
        states[1, step] = near
    return states


def members(run: dict[Key, Arrays]) -> dict[Key, list[Arrays]]:
    return {key: [arrays, arrays] for key, arrays in run.items()}


@given(st.integers(1, 1000), st.integers(1001, 2000))
def test_what_is_rounded_otherwise_is_the_same(one: int, other: int) -> None:
    """Sums over workers are rounded in another order, which is no smaller than a rounding of the weights."""
    comparison = compare(series(), series(1e-7, one), members(series(5e-7, other)))
    assert comparison.divergence is None
    assert comparison.blind is None
    assert 0 < comparison.difference < 1e-6


@given(st.integers(1, STEPS), st.floats(3e-3, 10.0), st.integers(0, 100))
def test_a_gradient_that_a_sample_is_missing_from_parts_at_its_step(step: int, by: float, seed: int) -> None:
    """Also where no weight has moved yet, as at a rate that begins with 0."""
    comparison = compare(series(), series(1e-7, 1), members(series(1e-7, seed, step, by)))
    assert comparison.divergence is not None
    assert (comparison.divergence.key, comparison.divergence.name) == ((1, step), G)


def test_where_rounding_alone_grows_too_large_nothing_is_told_of_what_follows() -> None:
    comparison = compare(series(), series(1e-7, 1, growth=30.0), members(series(1e-7, 2, growth=30.0)))
    assert comparison.divergence is None
    assert comparison.blind is not None
    assert comparison.blind[1] > 1
    verdict = verdict_of_comparison(comparison, COURSE)
    assert verdict.exit_code == 0
    assert f"up to step {comparison.blind[1] - 1}, then rounding alone is too much to tell" in verdict.sentence


def test_where_rounding_is_too_large_at_once_nothing_is_told() -> None:
    verdict = verdict_of_comparison(compare(series(), series(0.3, 1), members(series(0.3, 2))), COURSE)
    assert (verdict.answer, verdict.exit_code) == ("not comparable", 2)


def test_a_script_of_which_no_step_was_made_by_several_workers_is_not_told_to_be_right() -> None:
    verdict = verdict_of_comparison(compare(series(), series(1e-7, 1), members(series(1e-7, 2))), RunCounts(1, 0, 0))
    assert verdict.exit_code == 2
    assert "no step is made by several workers. More --steps" in verdict.sentence


@pytest.mark.parametrize("left", [1e-8, 1e-7])
def test_an_array_that_is_what_rounding_left_parts_nothing(left: float) -> None:
    """The gradient of a bias below a norm is 0, but for rounding; so is one to which each class adds as much."""
    runs = [series(), series(1e-7, 1), series(1e-7, 2)]
    for seed, run in enumerate(runs):
        for arrays in run.values():
            arrays["gradient 0.1 dense0_bias"] = np.random.default_rng(seed).normal(size=4) * left  # type: ignore[index]
    assert compare(runs[0], runs[1], members(runs[2])).divergence is None


@pytest.mark.parametrize("fewer", [True, False])
def test_steps_that_only_one_of_them_makes_part_them(fewer: bool) -> None:
    short = {key: arrays for key, arrays in series().items() if key[1] < 4}
    runs = (series(), members(short)) if fewer else (short, members(series()))
    comparison = compare(runs[0], runs[0], runs[1])
    assert comparison.divergence is not None
    assert (comparison.divergence.key, comparison.divergence.missing) == ((1, 4), "members" if fewer else "one")
    alone = "one process makes" if fewer else "workers that come and go make"
    assert verdict_of_comparison(comparison, COURSE).sentence == f"parts at step 4, which only {alone}"


def test_what_is_no_number_any_more_is_infinitely_far_and_in_the_first_run_ends_the_comparison() -> None:
    one = {W: np.array([1.0, math.nan])}
    assert relative_differences({W: np.ones(2)}, one)[W] == math.inf
    assert relative_differences({W: np.ones(2)}, {W: np.ones(3)})[W] == math.inf
    assert relative_differences(one, one)[W] == 0.0, "a script that diverges does so each time"
    diverged = series()
    diverged[1, 3] = one
    assert compare(diverged, diverged, members(diverged)).blind == (1, 3)


def test_a_script_that_is_another_one_each_time_is_told_where() -> None:
    divergence = first_divergence(series(), series(1e-3, 1))
    assert divergence is not None
    verdict = verdict_on_rerun(divergence)
    assert verdict.exit_code == 2
    assert "in the weights that it begins with, in `dense0_" in verdict.sentence
    assert first_divergence(series(), series()) is None
    assert first_divergence(series(), series(1e-8, 1, growth=50.0)) is None, (
        "a difference that grows is one of rounding"
    )


def test_what_is_drawn_next_is_no_weight_but_tells_whether_as_much_was_drawn() -> None:
    one, other = {W: np.ones(2), DRAWS: np.array([0.1])}, {W: np.ones(2), DRAWS: np.array([0.7])}
    assert relative_differences(one, other) == {W: 0.0}
    assert draws_match(one, [one, one])
    assert not draws_match(one, [one, other])


def test_the_verdict_names_the_step_the_workers_and_the_parameter() -> None:
    wrong = series()
    wrong[1, 3] = {**wrong[1, 3], B: wrong[1, 3][B] * 1.04}
    verdict = verdict_of_comparison(
        compare(series(), series(1e-7, 1), members(wrong)), RunCounts(STEPS, 4, 1, workers=3)
    )
    assert verdict.sentence == "parts at step 3, with 3 workers, first in `dense0_bias` (4e-2 against 1e-7)"
    assert (verdict.exit_code, verdict.facts["parameter"], verdict.facts["kills"]) == (1, "dense0_bias", 1)
    verdict = verdict_of_comparison(compare(series(), series(1e-7, 1), members(series(2e-7, 2))), COURSE)
    assert verdict.sentence == (
        "trains the same: largest difference 2e-7, rounding alone makes 1e-7 (6 steps, 4 changes, 1 kill)"
    )


def test_a_verdict_has_no_infinity_as_json_has_none() -> None:
    verdict = Verdict("parts", "", difference=math.inf)
    assert verdict.facts["difference"] is None
    assert number_text(math.inf) == "more than any number"
    assert [number_text(value) for value in (4e-2, 3.2e-7, 0.0, 1.0, 12.0)] == ["4e-2", "3e-7", "0", "1", "1e1"]


def test_a_job_that_stops_says_in_which_step_and_with_how_many_workers() -> None:
    verdict = verdict_on_stop(4, "ValueError: the batch has 5 rows", 3, COURSE)
    assert verdict.exit_code == 1
    assert verdict.sentence.startswith("stops in step 4 with 3 workers")


def test_what_rules_told_is_found_in_a_log_once() -> None:
    line = "train.py:12: DT301: the gradient is changed before it is summed: write allreduce_grads"
    log = ["2026-01-01 WARNING " + line, "epoch 1", "2026-01-01 WARNING " + line, "DT101: the loss is a mean"]
    assert findings(log) == (line, "DT101: the loss is a mean")


def test_findings_stand_beside_what_parts_and_those_that_stop_a_job_beside_what_does_not() -> None:
    findings = ("a.py:3: DT301: the gradient is changed", "a.py:9: DT604: n: carried")
    assert (
        with_findings(verdict_on_stop(4, "a.py:7: DT411: the workers divide", 3, COURSE), findings).findings == findings
    )
    assert (
        with_findings(verdict_on_refusal("a.py:3: DT301: the gradient is changed"), findings).findings == findings[1:]
    ), "said already"
    same = verdict_of_comparison(compare(series(), series(1e-7, 1), members(series(2e-7, 2))), COURSE)
    assert with_findings(same, findings[1:]) == same, "the numbers decide"
    both = with_findings(same, findings)
    assert (both.exit_code, both.findings) == (0, findings[:1])
    assert "But in a job a rule stops the script, until the rule is silenced on its line" in both.sentence


def test_a_worker_whose_script_raises_is_told_also_where_the_others_go_on(tmp_path: Path) -> None:
    """Of what is set in a loop alone, one that joins in the next loop has nothing."""
    order, ended = Order(folder=tmp_path, steps=3), EndedRun(0, tmp_path / "log")
    ended.log.write_text(
        'epoch 0\nTraceback (most recent call last):\n  File "a.py", line 3\n    x\n    ^\nNameError: x\nat the end\n'
    )

    def lost(*reasons: tuple[int, str]) -> str | None:
        events = [{"event": "worker_lost", "pid": pid, "reason": reason} for pid, reason in reasons]
        (tmp_path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        return script_error(order, ended)

    assert lost((1, "connection closed"), (1, "killed by SIGKILL")) is None, "as is planned"
    assert lost((1, "killed by SIGKILL"), (2, "connection closed"), (2, "exit code 1")) == "NameError: x"
    assert lost((2, "connection closed")) == "NameError: x", "the job was over before its exit code was known"
    ended.log.write_text("")
    assert lost((2, "connection closed")) is None, "nothing says so"
    assert lost((2, "exit code 3")) == "exit code 3"
    same = verdict_of_comparison(compare(series(), series(1e-7, 1), members(series(2e-7, 2))), COURSE)
    verdict = with_script_error(same, "NameError: x")
    assert verdict.exit_code == 1
    assert verdict.sentence.endswith("(6 steps, 4 changes, 1 kill), but a worker's script has failed: NameError: x")


def test_of_a_script_that_is_refused_all_is_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("epoch 0\ndyntrain.training.worker.refused.RefusedByAll: a.py:3: DT411: one\na.py:4: DT412: other\n")
    assert refusal_reason(EndedRun(1, log)) == "a.py:3: DT411: one\na.py:4: DT412: other"
    log.write_text("ValueError: of the script's own\n")
    assert refusal_reason(EndedRun(1, log)) is None
