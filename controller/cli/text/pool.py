"""The text and the JSON data of a plan for the reserved pool. Pure."""

from __future__ import annotations

import json
from typing import Any

from dyntrain.controller.core.pool.inputs import Inputs
from dyntrain.controller.core.pool.plan import Plan, PoolDecision
from dyntrain.controller.core.pool.stock import Entry


def pool_plan_data(plan: Plan, inputs: Inputs, cluster: str | None = None) -> dict[str, Any]:
    """The data that `dyntrain pool plan --json` prints."""
    pool_data = [
        {
            "cluster": decision.pool.cluster,
            "current": decision.pool.current,
            "held": decision.held,
            "base": decision.pool.base,
            "spare": decision.spare,
            "headroom": decision.pool.headroom,
            "min": decision.pool.min,
            "max": decision.pool.max,
            "entitled": decision.entitled,
            "proposal": decision.proposal,
            "target": decision.target,
            "reason": str(decision.reason),
            "sentence": decision.sentence,
            "dry_run": decision.pool.dry_run,
            "lines": [{"amount": amount, "text": meaning} for amount, meaning in _size_steps(decision, inputs)],
        }
        for decision in plan.decisions
        if cluster in (None, decision.pool.cluster)
    ]
    stock_entries = [{"text": entry.text, "amount": entry.amount, "unit": entry.unit} for entry in plan.entries]
    return {
        "problem": inputs.problem or None,
        "sum": stock_entries,
        "pools": pool_data,
        "inputs": inputs.model_dump(mode="json", exclude_defaults=True),
    }


def pool_plan_text(plan: Plan, inputs: Inputs, cluster: str | None = None, *, wide: bool = False) -> str:
    """The text that `dyntrain pool plan` prints about idle reserved instances and each pool's size. If `wide` is true,
    the text also contains the plan's inputs.
    """
    if not inputs.pools:
        return "no cluster has a pool"
    plan_lines = [_stock_line(entry) for entry in plan.entries] or ["nothing is reserved"]
    for decision in plan.decisions:
        if cluster not in (None, decision.pool.cluster):
            continue
        plan_lines += [
            "",
            f"{decision.pool.cluster}: {decision.pool.instance_type} in "
            f"{decision.pool.zone or 'any zone'}{', dry run' if decision.pool.dry_run else ''}",
        ]
        plan_lines += [f"{amount:>10}  {meaning}" for amount, meaning in _size_steps(decision, inputs)]
    if wide:
        input_fields = inputs.model_dump(mode="json", exclude_defaults=True)
        plan_lines += ["", "inputs read:"]
        for field, input_value in input_fields.items():
            plan_lines += [
                f"  {field}: {json.dumps(input_item)}"
                for input_item in (input_value if isinstance(input_value, list) else [input_value])
            ]
    return "\n".join(plan_lines)


def _size_steps(decision: PoolDecision, inputs: Inputs) -> list[tuple[str, str]]:
    """The steps by which a reserved pool's size is computed, as pairs of amount and meaning."""
    limits_text = "" if decision.pool.most is None else f", {decision.pool.least}..{decision.pool.most} possible"
    computed_steps = [
        (f"{decision.pool.base}", "base, reserved or not"),
        (f"{decision.spare:+}", "spare: idle reserved instances, and the pool's own"),
        (f"{-decision.pool.headroom:+}", "headroom that stays free for other users"),
        (f"{decision.entitled}", f"entitled, within {decision.pool.min}..{decision.pool.max}{limits_text}"),
        (f"{decision.proposal}", "without instances that other clusters still hold"),
    ]
    return [
        *([] if inputs.problem else computed_steps),
        (f"{decision.pool.current}", f"wanted now, {decision.held} running"),
        (f"{decision.target}", f"TARGET: {decision.reason}, {decision.sentence}"),
    ]


def _stock_line(entry: Entry) -> str:
    return f"{entry.amount:>+10g}  {'units' if entry.unit == 'units' else '     '}  {entry.text}"
