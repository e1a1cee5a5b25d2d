"""The text and the JSON data of a plan for the reserved pool. Pure."""

from __future__ import annotations

import json
from typing import Any

from dyntrain.controller.core.pool.inputs import Inputs
from dyntrain.controller.core.pool.plan import Plan, PoolDecision
from dyntrain.controller.core.pool.stock import Entry


def as_data(decided: Plan, inputs: Inputs, cluster: str | None = None) -> dict[str, Any]:
    """The data that `dyntrain pool plan --json` prints."""
    pools = [
        {
            "cluster": one.pool.cluster,
            "current": one.pool.current,
            "held": one.held,
            "base": one.pool.base,
            "spare": one.spare,
            "headroom": one.pool.headroom,
            "min": one.pool.min,
            "max": one.pool.max,
            "entitled": one.entitled,
            "proposal": one.proposal,
            "target": one.target,
            "reason": str(one.reason),
            "sentence": one.sentence,
            "dry_run": one.pool.dry_run,
            "lines": [{"amount": amount, "text": words} for amount, words in _own(one, inputs)],
        }
        for one in decided.decisions
        if cluster in (None, one.pool.cluster)
    ]
    total = [{"text": entry.text, "amount": entry.amount, "unit": entry.unit} for entry in decided.entries]
    return {
        "problem": inputs.problem or None,
        "sum": total,
        "pools": pools,
        "inputs": inputs.model_dump(mode="json", exclude_defaults=True),
    }


def as_text(decided: Plan, inputs: Inputs, cluster: str | None = None, *, wide: bool = False) -> str:
    """The text that `dyntrain pool plan` prints: the sum, then each pool's size, and with `wide` the inputs."""
    if not inputs.pools:
        return "no cluster has a pool"
    lines = [_line(entry) for entry in decided.entries] or ["nothing is reserved"]
    for one in decided.decisions:
        if cluster not in (None, one.pool.cluster):
            continue
        lines += [
            "",
            f"{one.pool.cluster}: {one.pool.instance_type} in "
            f"{one.pool.zone or 'any zone'}{', dry run' if one.pool.dry_run else ''}",
        ]
        lines += [f"{amount:>10}  {words}" for amount, words in _own(one, inputs)]
    if wide:
        read = inputs.model_dump(mode="json", exclude_defaults=True)
        lines += ["", "what was read:"]
        for name, value in read.items():
            lines += [f"  {name}: {json.dumps(one)}" for one in (value if isinstance(value, list) else [value])]
    return "\n".join(lines)


def _own(one: PoolDecision, inputs: Inputs) -> list[tuple[str, str]]:
    """The steps by which a pool's size is computed, as pairs of amount and meaning."""
    most = "" if one.pool.most is None else f", {one.pool.least}..{one.pool.most} where they come from"
    worked_out = [
        (f"{one.pool.base}", "base, reserved or not"),
        (f"{one.spare:+}", "spare: reserved and idle, or the pool's own"),
        (f"{-one.pool.headroom:+}", "headroom for whoever comes back"),
        (f"{one.entitled}", f"entitled, within {one.pool.min}..{one.pool.max}{most}"),
        (f"{one.proposal}", "of which other clusters hold nothing any more"),
    ]
    return [
        *([] if inputs.problem else worked_out),
        (f"{one.pool.current}", f"asked for now, {one.held} running"),
        (f"{one.target}", f"TARGET: {one.reason}, {one.sentence}"),
    ]


def _line(entry: Entry) -> str:
    return f"{entry.amount:>+10g}  {'units' if entry.unit == 'units' else '     '}  {entry.text}"
