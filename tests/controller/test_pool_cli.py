"""`dyntrain pool plan` as people and scripts meet it, on recorded inputs; and the events that have the pool looked
at.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from chalice.app import CloudWatchEventConfig
from click.testing import CliRunner, Result
from dyntrain.controller import wiring
from dyntrain.controller.cli.main import main
from dyntrain.controller.contract.errors import GiveUp, Quarantined
from dyntrain.controller.core.incoming.event_rules import CAPACITY_CHANGE_TYPES, INTERRUPTION_TYPES
from dyntrain.controller.core.incoming.events import DroppedEvent, observe
from dyntrain.controller.core.records.facts import NodeFacts
from fakes import ELASTIC, World, instance_id

import app

INPUTS: dict[str, Any] = {
    "at": 1_700_000_000.0,
    "reserved": [{"id": "ri-1", "instance_type": "c5.xlarge", "count": 4, "end": 1_800_000_000.0}],
    "usage": [
        {"instance_type": "c5.large", "zone": "eu-central-1a", "count": 3},
        {"instance_type": "c5.2xlarge", "zone": "eu-central-1b"},
    ],
    "pools": [
        {
            "cluster": "alpha",
            "instance_type": "c5.large",
            "readings": 1,
            "headroom": 1,
            "max": 4,
            "base": 1,
            "current": 1,
        },
        {"cluster": "beta", "instance_type": "m5.large", "dry_run": True},
    ],
}


def plan(file: Path, inputs: Any, *arguments: str) -> Result:
    file.write_text(inputs if isinstance(inputs, str) else json.dumps(inputs))
    return CliRunner().invoke(main, ["pool", "plan", "--from-file", str(file), *arguments])


def test_the_sum_is_shown_line_by_line(tmp_path: Path) -> None:
    """32 units bought; 3 large use 12, a 2xlarge 16: 4 left, one large; that is alpha's base, so nothing is spare and
    headroom cannot be kept.
    """
    done = plan(tmp_path / "inputs.json", INPUTS)
    lines = [line.split() for line in done.output.splitlines()]
    assert done.exit_code == 0
    assert [(line[0], line[1]) for line in lines[:3]] == [("+32", "units"), ("-12", "units"), ("-16", "units")]
    assert "ri-1" in done.output
    assert ["+0", "spare:"] in [line[:2] for line in lines]
    assert "0  TARGET: SHRUNK, somebody else needs the reserved instances" in done.output
    assert "beta: m5.large in any zone, dry run" in done.output
    assert "inputs read" not in done.output
    wide = plan(tmp_path / "inputs.json", INPUTS, "--output", "wide").output
    assert wide.startswith(done.output.rstrip())
    assert '  reserved: {"id": "ri-1"' in wide


def test_json_has_the_sum_the_pools_and_inputs_that_can_be_fed_again(tmp_path: Path) -> None:
    first = json.loads(plan(tmp_path / "inputs.json", INPUTS, "--json", "--cluster", "alpha").output)
    again = json.loads(plan(tmp_path / "again.json", first["inputs"], "--json", "--cluster", "alpha").output)
    assert first == again
    assert [entry["amount"] for entry in first["sum"]] == [32.0, -12.0, -16.0]
    (pool,) = first["pools"]
    assert (pool["cluster"], pool["base"], pool["spare"], pool["headroom"], pool["target"], pool["reason"]) == (
        "alpha",
        1,
        0,
        1,
        0,
        "SHRUNK",
    )


def test_a_partial_reading_is_said_and_is_no_success(tmp_path: Path) -> None:
    done = plan(tmp_path / "inputs.json", {**INPUTS, "problem": "RequestLimitExceeded"})
    assert done.exit_code == 1
    assert "not everything could be read: RequestLimitExceeded" in done.output
    assert "TARGET: PARTIAL_READ" in done.output


@pytest.mark.parametrize(
    ("inputs", "arguments", "message"),
    [
        ("{", (), "Invalid JSON"),
        ({**INPUTS, "reserved": [{"id": "x", "count": -1}]}, (), "reserved.0.instance_type"),
        ({**INPUTS, "surprise": 1}, (), "surprise"),
        (INPUTS, ("--cluster", "nope"), "cluster 'nope' has no pool (clusters with a pool: alpha, beta)"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(
    tmp_path: Path, inputs: Any, arguments: tuple[str, ...], message: str
) -> None:
    done = plan(tmp_path / "inputs.json", inputs, *arguments)
    assert done.exit_code == 1
    assert message in done.output
    assert len(done.output.strip().splitlines()) == 1


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["pool", "plan", "--from-file", str(tmp_path / "absent.json")])
    assert (done.exit_code, len(done.output.strip().splitlines())) == (1, 1)
    assert "absent.json cannot be read" in done.output


def listening(handler: str) -> set[str]:
    (source,) = (
        source
        for source in app.app.event_sources
        if isinstance(source, CloudWatchEventConfig) and source.name == handler
    )
    return set(source.event_pattern["detail-type"])


@pytest.mark.parametrize("kind", CAPACITY_CHANGE_TYPES)
def test_every_capacity_event_has_a_rule_is_understood_and_writes_no_facts(kind: str) -> None:
    """Both spellings of the Capacity Block events, and a payload with little in it."""
    world = World()
    full = world.event(
        "aws.ec2",
        kind,
        {"capacity-reservation-id": "cr-0123", "state": "active", "end-date": "2026-01-01"},
        "arn:aws:ec2:::x/cr-0123",
    )
    bare = world.event("aws.ec2", kind, {})
    for event in (full, bare):
        news = observe(event, ELASTIC)
        assert isinstance(news, DroppedEvent)
        assert news.outcome == "ignored"
    assert kind in listening("on_capacity_change")


@pytest.mark.parametrize("kind", INTERRUPTION_TYPES)
def test_an_instance_that_its_capacity_reservation_loses_leaves_before_the_time_told(kind: str) -> None:
    world = World()
    detail = {
        "instance-id": instance_id(1),
        "instance-action": "terminate",
        "instance-termination-time": "2023-11-14T22:40:00Z",
        "azId": "euc1-az1",
    }
    event = {
        **world.event("aws.ec2", kind, detail),
        "resources": "arn:aws:ec2:eu-central-1:111122223333:instance/" + instance_id(1),
    }
    timed = observe(event, ELASTIC)
    untold = observe(world.event("aws.ec2", kind, {"instance-id": instance_id(1)}), ELASTIC)
    assert isinstance(timed, NodeFacts)
    assert isinstance(untold, NodeFacts)
    assert [notice.deadline for notice in timed.notices] == [1_700_001_600.0]
    assert [notice.deadline for notice in untold.notices] == [world.now + 120.0]
    assert kind in listening("on_interruption")


def test_a_capacity_event_that_is_none_goes_to_the_dead_letters_with_its_reason() -> None:
    """AWS's page shows placeholders and other key names; such a payload must neither be acted on nor lost."""
    with pytest.raises(Quarantined, match="time"):
        wiring.on_pool_event(
            {"source": "aws.ec2", "detail_type": "Capacity Block Delivered", "time": "[Current time]", "detail": {}}
        )
    assert issubclass(Quarantined, GiveUp)


def test_the_pool_is_looked_at_when_instances_start_and_stop_and_every_five_minutes() -> None:
    assert listening("on_demand_change") == {"EC2 Instance State-change Notification"}
    expressions = {
        source.name: source.schedule_expression.to_string()
        for source in app.app.event_sources
        if source.name in ("rebalance", "resync")
    }
    assert expressions["rebalance"] == "rate(5 minutes)"
