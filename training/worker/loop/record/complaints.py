"""What is said where a loss does not fit what its trainer was told."""

from __future__ import annotations

from dyntrain.training.worker.loop.record.losses import (
    ALONG,
    CHOSEN,
    CURVED,
    DIVIDED,
    EACH,
    GIVEN,
    MEAN,
    MIXED,
    NORMALISED,
    OPAQUE,
    PENALTY,
    PICKED,
    SUM,
    UNKNOWN,
    WEIGHTS,
)

HOW_MEAN = "job.trainer(..., loss='mean'); trainer.step() is told what it was told before"
HOW_COUNTED = (
    "what each batch has more or less of, as words or positives, is counted over all workers: leave the division out, "
    "and write trainer.step(epoch.sum(n)) with the n that it was divided by"
)
HOW_SEVERAL = (
    "Several terms, each divided by a number of its own: one.sum() / epoch.sum(n) + other.sum() / epoch.sum(m), with "
    "job.trainer(..., loss='own') and trainer.step(1)"
)
OF_ONE = "Where a loss is of one sample, and the script goes through them: job.trainer(..., loss='sum')"
HOW_ONCE = (
    "Beside a sum: n = epoch.sum(len(x)) before autograd.record(), term * len(x) / n in the term's place, and "
    "job.trainer(..., loss='sum'). Or loss.mean() + term / b, trainer.step(1) and loss='mean', where b is what "
    "trainer.step() was told"
)
OF_WEIGHTS = (
    f"the loss has a term of the weights alone, which would count once for each worker. {HOW_ONCE}. Or the optimizer's "
    "wd"
)
OF_PICKED = (
    "the loss is a mean over places that are picked by their numbers: where each sample has as many, "
    f"{HOW_MEAN}. Where a batch has more or less of them: write .sum() in place of .mean(), and "
    f"trainer.step(epoch.sum(n)) with how many are picked. {HOW_SEVERAL}"
)
OF_ARRAYS = (
    "the loss has a term of weights and arrays through no layer, as one that holds the weights near a start, or of "
    f"weights that are drawn: it would count once for each worker. {HOW_ONCE}. Where the term is made of the batch, or "
    "added to each sample's loss: job.trainer(..., loss='sum')"
)
OF_BOTH = (
    "the loss is a mean over the batch, and a sum beside it: make each term a sum, divided by what it is a mean over, "
    "on all workers, or by a constant: one.sum() / epoch.sum(len(x)) + other.sum() / 8, with job.trainer(..., "
    "loss='own') and trainer.step(1)"
)
SAYS = {
    ("sum", MEAN): f"the loss is a mean over the batch, and its trainer was not told: {HOW_MEAN}. {OF_ONE}",
    ("own", MEAN): f"the loss is a mean over this worker's samples, with loss='own': {HOW_MEAN}",
    ("mean", SUM): (
        "the loss is a sum, with loss='mean': leave loss='mean' out, or write .mean() in place of .sum(). "
        + HOW_SEVERAL
    ),
    ("any", DIVIDED): (
        f"the loss is divided by something that this worker counted in its samples: {HOW_COUNTED}. {HOW_SEVERAL}. "
        f"{OF_ONE}"
    ),
    ("any", CHOSEN): (
        "the loss is a mean over places that are chosen in the batch, of which each worker has another number: write "
        f".sum() in place of .mean(), and trainer.step(epoch.sum(n)) with how many are chosen. {HOW_SEVERAL}"
    ),
    ("any", NORMALISED): (
        "the loss has normalization='valid' or 'batch', which divides by what this worker counted, in its backward "
        "pass: normalization='null', and trainer.step(epoch.sum(n) * m), where n is what it counted ('batch': the "
        "samples) and m what trainer.step() was told; with S places of a sample (multi_output) 'null' divides by S "
        "already: trainer.step(epoch.sum(n) / S * m)"
    ),
    ("any", MIXED): (
        "each sample's loss has a sum or a mean over the batch in it, which is another one in each worker's share. "
        "Where that is a mean, and is added: make one .mean() of all, with job.trainer(..., loss='mean') and "
        "trainer.step(1). Where it is counted: n = epoch.sum(n), before autograd.record(). Anything else needs the "
        f"whole batch on one worker. {OF_ONE}"
    ),
    ("any", CURVED): (
        "the loss is a function of something over the batch, as a root of a mean or its largest, to which the workers' "
        f"shares do not add up: leave the function out, or take it of each sample. {OF_ONE}"
    ),
    ("any", GIVEN): (
        "backward() is given gradients that are not 1, and what it comes to does not show: say job.trainer(..., "
        "loss='sum') where each is of its sample alone, 'mean' where they are divided by the samples in hand, or 'own'"
    ),
    ("any", OPAQUE): (
        "the loss is an autograd.Function or a CustomOp, whose backward pass does not show: say job.trainer(..., "
        "loss='sum') where each sample's gradient is of that sample alone, 'mean' where it divides by the samples in "
        "hand. What else is counted in the batch: leave the division out there, and write trainer.step(epoch.sum(n))"
    ),
    ("sum", PICKED): OF_PICKED,
    ("own", PICKED): OF_PICKED,
    ("sum", WEIGHTS): OF_WEIGHTS,
    ("own", WEIGHTS): OF_WEIGHTS,
    ("sum", PENALTY): OF_ARRAYS,
    ("own", PENALTY): OF_ARRAYS,
    ("any", UNKNOWN): (
        "the loss is one number for the batch, and does not show what it is: say job.trainer(..., loss='sum'), 'mean', "
        "or 'own' for one that is divided by the same number on every worker"
    ),
    ("any", ALONG): (
        "the loss is a sum or a mean along its first axis, and another one of what that leaves: whether the samples or "
        "the time are along that axis does not show. Say job.trainer(..., loss='mean') where all in all it is a mean "
        "over the samples, 'sum' where it is a number for each sample, or their sum; trainer.step() is told what it "
        "was told before"
    ),
    ("mean", EACH): (
        "the loss has a number for each sample, with loss='mean': leave loss='mean' out where trainer.step() is told "
        "the batch size. Where the numbers were divided by something that is counted in the batch: " + HOW_COUNTED
    ),
}


def complaint(told: str, said: bool, found: set[str], whole: bool = False) -> str | None:
    """`told`: what the trainers go by; `said`: whether the script said so itself: a sum may be made one by one.
    `whole`: nothing more is differentiated before the update.
    """
    if told == "sum" and said:
        return None
    if found == {MEAN, SUM}:
        return OF_BOTH
    if found == {PENALTY}:  # of the batch, then: a linear model that is written by hand
        return SAYS["mean", SUM] if told == "mean" and whole else None
    weights = [WEIGHTS] if len(found) > 1 or whole else []
    for kind in (NORMALISED, DIVIDED, CHOSEN, MIXED, CURVED, PICKED, MEAN, SUM, *weights, PENALTY, EACH):
        if kind in found and (wrong := SAYS.get((told, kind)) or SAYS.get(("any", kind))):
            return wrong
    for kind in (GIVEN, OPAQUE, UNKNOWN, ALONG):
        if kind in found and not said:
            return SAYS["any", kind]
    return None
