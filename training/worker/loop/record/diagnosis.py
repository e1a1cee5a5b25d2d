"""Which rule is broken where a loss does not fit what its trainer was told."""

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

RULE_OF = {  # by what trainers go by, and what is differentiated
    ("sum", MEAN): "DT101",
    ("own", MEAN): "DT101",
    ("mean", SUM): "DT102",
    ("any", DIVIDED): "DT104",
    ("any", CHOSEN): "DT105",
    ("sum", PICKED): "DT106",
    ("own", PICKED): "DT106",
    ("any", NORMALISED): "DT107",
    ("any", MIXED): "DT108",
    ("any", CURVED): "DT109",
    ("sum", WEIGHTS): "DT110",
    ("own", WEIGHTS): "DT110",
    ("sum", PENALTY): "DT111",
    ("own", PENALTY): "DT111",
    ("any", GIVEN): "DT112",
    ("any", OPAQUE): "DT113",
    ("any", UNKNOWN): "DT114",
    ("any", ALONG): "DT115",
    ("mean", EACH): "DT116",
}
BOTH = "DT103"


def diagnose(told: str, said: bool, found: set[str], whole: bool = False) -> str | None:
    """Its code. `told`: what the trainers go by; `said`: whether the script said so itself: a sum may be made one by
    one. `whole`: nothing more is differentiated before the update.
    """
    if told == "sum" and said:
        return None
    if found == {MEAN, SUM}:
        return BOTH
    if found == {PENALTY}:  # of the batch, then: a linear model that is written by hand
        return RULE_OF["mean", SUM] if told == "mean" and whole else None
    weights = [WEIGHTS] if len(found) > 1 or whole else []
    for kind in (NORMALISED, DIVIDED, CHOSEN, MIXED, CURVED, PICKED, MEAN, SUM, *weights, PENALTY, EACH):
        if kind in found and (wrong := RULE_OF.get((told, kind)) or RULE_OF.get(("any", kind))):
            return wrong
    for kind in (GIVEN, OPAQUE, UNKNOWN, ALONG):
        if kind in found and not said:
            return RULE_OF["any", kind]
    return None
