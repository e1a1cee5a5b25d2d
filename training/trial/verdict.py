"""Verdict of an experiment: whether the script trains the same on changing workers, as a sentence. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from dyntrain.training.checks.rules import RULES
from dyntrain.training.trial.differences import GRADIENT, Comparison, Divergence

Answer = Literal["same", "parts", "not comparable"]
EXIT_CODES: dict[Answer, int] = {"same": 0, "parts": 1, "not comparable": 2}
NO_STEP_SENTENCE = (
    "not comparable: the script ended without a step. It needs ElasticJob.join() and job.epochs(): training/GUIDE.md"
)
PER_WORKER_SENTENCE = (
    "not comparable: with batching=PerWorker(...) several workers have a larger batch than one process. Check the "
    "script with global_batch="
)
RULE_STOPS_TEXT = "But in a job a rule stops the script, until the rule is silenced on its line"
RULE_CODE_PATTERN = re.compile(r"\bDT\d{3}\b")
FINDING_PATTERN = re.compile(r"(?:\S+:\d+: )?DT\d{3}: .*")
DIFFERING_VARIABLES_TEXT = (
    "Variables that differ on a worker that joined: {}. job.keep(...) keeps arrays and nets, job.memory(...) numbers"
)
NOT_CHECKED_TEXT = (
    "Dropout, BatchNorm's batch statistics and draws in a step differ between workers of a job, but not in this check."
)


@dataclass(frozen=True)
class RunCounts:
    """Numbers of steps, changes and kills in the run with changing members."""

    steps: int  # number of compared steps
    changes: int  # number of membership changes
    kills: int  # number of killed workers
    workers: int = 1  # workers in the first step that differs
    most: int = 1  # most workers in a compared step


@dataclass(frozen=True)
class Verdict:
    answer: Answer  # whether the script trains the same
    sentence: str  # the result in words
    step: int | None = None  # first step that differs
    parameter: str | None = None  # first parameter that differs
    difference: float | None = None  # largest relative difference of weights
    rounding: float | None = None  # largest effect of rounding on weights
    course: RunCounts | None = None  # numbers of steps, changes and kills
    findings: tuple[str, ...] = ()  # messages of the broken rules
    others: str = ""  # variables whose values differed between the members

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.answer]

    @property
    def facts(self) -> dict[str, Any]:
        """The verdict's fields as data for JSON; infinities and NaN become None, because JSON cannot contain these
        values.
        """
        facts = {"verdict" if name == "answer" else name: value for name, value in asdict(self).items()}
        del facts["course"]
        count_names = () if self.course is None else ("steps", "changes", "kills")
        facts |= {name: getattr(self.course, name) for name in count_names}
        return {name: None if _is_not_finite(value) else value for name, value in facts.items()}


def _is_not_finite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def verdict_of_comparison(comparison: Comparison, counts: RunCounts) -> Verdict:
    """Return the verdict that follows from a comparison of the run in one process with the run on changing workers."""
    counts_text = _counts_text(counts)
    if comparison.divergence is not None:
        return _verdict_on_divergence(comparison.divergence, comparison.rounding, counts)
    difference_text, rounding_text = number_text(comparison.difference), number_text(comparison.rounding)
    numbers_text = f"largest difference {difference_text}, rounding alone makes {rounding_text}"
    if comparison.blind is not None and comparison.blind[1] <= 1:
        effect_text, step = number_text(comparison.rounding), comparison.blind[1]
        sentence = f"not comparable: rounding alone moves the weights by {effect_text} in step {step}"
        return Verdict("not comparable", sentence, rounding=comparison.rounding, course=counts)
    if counts.most == 1:
        blind_text = (
            ""
            if comparison.blind is None
            else f" before step {comparison.blind[1]}, from which on rounding alone is too much to tell"
        )
        sentence = f"not comparable: no step is made by several workers{blind_text}. More --steps, or an earlier --plan"
        return Verdict("not comparable", sentence, rounding=comparison.rounding, course=counts)
    upto_text = (
        ""
        if comparison.blind is None
        else f" up to step {comparison.blind[1] - 1}, then rounding alone is too much to tell"
    )
    return Verdict(
        "same",
        f"trains the same{upto_text}: {numbers_text} ({counts_text})",
        difference=comparison.difference,
        rounding=comparison.rounding,
        course=counts,
    )


def _verdict_on_divergence(divergence: Divergence, rounding: float, counts: RunCounts) -> Verdict:
    step = divergence.key[1]
    if divergence.missing:
        maker_text = {"members": "one process makes", "one": "workers that come and go make"}[divergence.missing]
        return Verdict("parts", f"parts at step {step}, which only {maker_text}", step=step, course=counts)
    name = parameter_name(divergence.name)
    gradient_text = "the gradient of " if divergence.name.startswith(GRADIENT) else ""
    numbers_text = f"{number_text(divergence.difference)} against {number_text(divergence.rounding)}"
    workers_text = f", with {counts.workers} workers" if counts.workers > 1 else ""
    return Verdict(
        "parts",
        f"parts at step {step}{workers_text}, first in {gradient_text}`{name}` ({numbers_text})",
        step=step,
        parameter=name,
        difference=divergence.difference,
        rounding=rounding,
        course=counts,
    )


def verdict_on_saved(files: Mapping[str, float], comparison: Comparison, counts: RunCounts) -> Verdict:
    """Return the verdict on a script whose weights are equal, but which saves different arrays on a joined worker."""
    most_different_file = max(files, key=lambda file: files[file])
    sentence = (
        f"trains the same, but a worker that joined saves another `{most_different_file}` "
        f"({number_text(files[most_different_file])} against {number_text(comparison.rounding)})"
    )
    return Verdict("parts", sentence, difference=comparison.difference, rounding=comparison.rounding, course=counts)


def verdict_on_rerun(divergence: Divergence) -> Verdict:
    place_text = "in the weights that it begins with" if divergence.key[1] == 0 else f"at step {divergence.key[1]}"
    name = parameter_name(divergence.name)
    sentence = f"not comparable: the script is not the same twice in one process, first {place_text}, in `{name}`"
    return Verdict("not comparable", f"{sentence}. Seed its random generators", step=divergence.key[1], parameter=name)


def verdict_on_draws(divergence: Divergence, draw_effect: float, rounding: float) -> Verdict:
    name, step = parameter_name(divergence.name), divergence.key[1]
    sentence = (
        f"not comparable: the script's random draws within a step move `{name}` by {number_text(draw_effect)} at step "
        f"{step}, and each worker draws its own. epoch.per_sample(name, draw) draws for samples"
    )
    return Verdict("not comparable", sentence, step, name, divergence.difference, rounding)


def verdict_on_stop(step: int, reason: str, workers: int, counts: RunCounts | None = None) -> Verdict:
    """Return the verdict on a script whose job with changing workers failed in step `step`."""
    workers_text = f" with {workers} workers" if workers > 1 else ""
    return Verdict(
        "parts",
        f"stops in step {step}{workers_text}, which it does not in one process: {reason}",
        step=step,
        course=counts,
    )


def with_script_error(verdict: Verdict, reason: str) -> Verdict:
    """Return the verdict on a script that failed on one worker while the other workers continued."""
    return replace(verdict, answer="parts", sentence=f"{verdict.sentence}, but a worker's script has failed: {reason}")


def verdict_on_refusal(reason: str) -> Verdict:
    """Return the verdict on a script that the job refused already in the run in one process."""
    return Verdict("parts", f"is refused before it can be compared: {reason}")


def findings(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the findings (messages about broken rules) in the lines of a script's log, each finding once."""
    return tuple(dict.fromkeys(match[0] for line in lines if (match := FINDING_PATTERN.search(line))))


def with_findings(verdict: Verdict, findings: tuple[str, ...]) -> Verdict:
    """Return the verdict with findings (messages about broken rules) added.

    For a script that trains the same, only findings that would stop a job are added. For any other script, all findings
    are added, because they are likely causes.
    """
    if verdict.answer != "same":
        return replace(verdict, findings=tuple(finding for finding in findings if finding not in verdict.sentence))
    stopping_findings = tuple(
        finding for finding in findings if RULES[RULE_CODE_PATTERN.findall(finding)[0]].severity == "error"
    )
    sentence = f"{verdict.sentence}. {RULE_STOPS_TEXT}" if stopping_findings else verdict.sentence
    return replace(verdict, sentence=sentence, findings=stopping_findings)


def verdict_on_failure(run: str, reason: str) -> Verdict:
    return Verdict("not comparable", f"not comparable: {run} {reason}")


def parameter_name(name: str) -> str:
    return name.rpartition(" ")[2]


def number_text(value: float) -> str:
    return (
        "more than any number"
        if math.isinf(value)
        else f"{value:.0e}".replace("e-0", "e-").replace("e+00", "").replace("e+0", "e")
    )


def _counts_text(counts: RunCounts) -> str:
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in (
        (counts.steps, "step"), (counts.changes, "change"), (counts.kills, "kill")))  # fmt: skip
