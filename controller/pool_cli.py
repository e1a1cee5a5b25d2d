"""`dyntrain pool plan`: what the reserved pool would do now and why, line by line. Changes nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from controller.cli_connection import one_clear_line
from controller.errors import GiveUp
from controller.recorded import text_of
from controller.registry import Registry
from controller.reserved import Plan, plan_pools
from controller.reserved_inputs import Inputs
from controller.reserved_stock import Entry
from controller.settings import Settings


@click.group()
def pool() -> None:
    """Idle reserved instances that are handed to clusters."""


@pool.command()
@click.option("--cluster", help="Only this cluster; the sum is over all of them either way.")
@click.option("--from-file", "file", type=click.Path(path_type=Path), help="Decide on recorded inputs (a JSON file) and read nothing from AWS.")
@click.option("--json", "as_json", is_flag=True, help='Print {"problem", "sum", "pools", "inputs"}; the inputs fit --from-file.')
def plan(cluster: str | None, file: Path | None, as_json: bool) -> None:
    """The sum of reservations less what uses them, and the size that each pool should have. Exit code 1: not everything could be read."""
    with one_clear_line():
        inputs = _from_file(file) if file is not None else _from_aws()
        if cluster is not None and all(one.cluster != cluster for one in inputs.pools):
            raise GiveUp(f"no pool of a cluster {cluster!r} (known: {', '.join(one.cluster for one in inputs.pools) or 'none'})")
    decided = plan_pools(inputs)
    click.echo(json.dumps(as_data(decided, inputs, cluster)) if as_json else as_text(decided, inputs, cluster))
    if inputs.problem:
        raise click.exceptions.Exit(1)


def as_data(decided: Plan, inputs: Inputs, cluster: str | None = None) -> dict[str, Any]:
    """What `--json` prints."""
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
            "sentence": one.pool.frozen or one.reason.sentence,
            "dry_run": one.pool.dry_run,
        }
        for one in decided.decisions
        if cluster in (None, one.pool.cluster)
    ]
    total = [{"text": entry.text, "amount": entry.amount, "unit": entry.unit} for entry in decided.entries]
    return {"problem": inputs.problem or None, "sum": total, "pools": pools, "inputs": inputs.model_dump(mode="json", exclude_defaults=True)}


def as_text(decided: Plan, inputs: Inputs, cluster: str | None = None) -> str:
    """What people read: the sum, then each pool's own."""
    if not inputs.pools:
        return "no cluster has a pool"
    lines = [_line(entry) for entry in decided.entries] or ["nothing is reserved"]
    for one in decided.decisions:
        if cluster not in (None, one.pool.cluster):
            continue
        lines += ["", f"{one.pool.cluster}: {one.pool.instance_type} in {one.pool.zone or 'any zone'}{', dry run' if one.pool.dry_run else ''}"]
        if not inputs.problem:
            most = "" if one.pool.most is None else f", {one.pool.least}..{one.pool.most} where they come from"
            lines += [
                f"{one.pool.base:>10}  base, reserved or not",
                f"{one.spare:>+10}  spare: reserved and idle, or the pool's own",
                f"{-one.pool.headroom:>+10}  headroom for whoever comes back",
                f"{one.entitled:>10}  entitled, within {one.pool.min}..{one.pool.max}{most}",
                f"{one.proposal:>10}  of which other clusters hold nothing any more",
            ]
        lines += [
            f"{one.pool.current:>10}  asked for now, {one.held} running",
            f"{one.target:>10}  TARGET: {one.reason}, {one.pool.frozen or one.reason.sentence}",
        ]
    return "\n".join(lines)


def _line(entry: Entry) -> str:
    return f"{entry.amount:>+10g}  {'units' if entry.unit == 'units' else '     '}  {entry.text}"


def _from_file(file: Path) -> Inputs:
    try:
        return Inputs.model_validate_json(text_of(file))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, entry['loc'])) or 'file'}: {entry['msg']}" for entry in error.errors())
        raise GiveUp(f"{file}: {wrong}") from error


def _from_aws() -> Inputs:
    from controller.pool_reading import inputs_of, read_pools
    from controller.rebalance import pooled
    from controller.wiring import aws_pool_ports

    settings = Settings.of(os.environ)
    world = aws_pool_ports(settings.table, attempts=2)
    registry = Registry(world.ports.parameters, world.ports.clock)
    policies = pooled(registry)
    stored = world.ledger.get()
    return inputs_of(read_pools(world, registry, policies, stored, settings.elastic_suffix), policies, stored)
