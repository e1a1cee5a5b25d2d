"""Find the rule that a loss breaks if it does not fit its trainer's declared `loss`."""

from __future__ import annotations

from dyntrain.training.worker.loop.record import losses as kinds

ANY, SUMS, MEANS = ("sum", "own", "mean"), ("sum", "own"), ("mean",)
RULE_ROWS = (  # kind of loss, `loss` of trainers, rule; the first row that applies counts
    (kinds.NORMALISED, ANY, "DT107"),
    (kinds.DIVIDED, ANY, "DT104"),
    (kinds.CHOSEN, ANY, "DT105"),
    (kinds.MIXED, ANY, "DT108"),
    (kinds.CURVED, ANY, "DT109"),
    (kinds.PICKED, SUMS, "DT106"),
    (kinds.MEAN, SUMS, "DT101"),
    (kinds.SUM, MEANS, "DT102"),
    (kinds.WEIGHTS, SUMS, "DT110"),
    (kinds.PENALTY, SUMS, "DT111"),
    (kinds.EACH, MEANS, "DT116"),
)
SUM_AND_MEAN, UNKNOWN_LOSS = "DT103", "DT114"


def diagnose(declared_loss: str, is_declared: bool, seen_kinds: set[str], whole: bool = False) -> str | None:
    """Return the code of the rule that a loss breaks, or None if the loss breaks no rule.

    `declared_loss`: the trainers' `loss`. `is_declared`: whether the script itself has set `loss`; a declared
    `loss='sum'` breaks no rule. `whole`: whether the kinds of all losses of the update are known, because no further
    loss is differentiated before the update.
    """
    if declared_loss == "sum" and is_declared:
        return None
    if seen_kinds == {kinds.MEAN, kinds.SUM}:
        return SUM_AND_MEAN
    if seen_kinds == {kinds.PENALTY}:  # may be a loss over the batch, of a linear model written by hand
        return "DT102" if declared_loss == "mean" and whole else None
    if seen_kinds == {kinds.WEIGHTS} and not whole:
        return None
    broken_rules = (
        rule_code
        for kind, declared_kinds, rule_code in RULE_ROWS
        if kind in seen_kinds and declared_loss in declared_kinds
    )
    return next(broken_rules, UNKNOWN_LOSS if kinds.UNKNOWN in seen_kinds and not is_declared else None)
