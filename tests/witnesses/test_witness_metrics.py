"""The lines by which CloudWatch learns of metrics, against those of Powertools, which AWS writes for its own format."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_lambda_powertools.metrics import EphemeralMetrics
from dyntrain.controller.adapters.metrics import GAUGE_UNITS, NAMESPACE, EmbeddedMetrics
from dyntrain.controller.core.decisions.alarms import METRICS
from fakes import World

REPORTED = {"Workers": 2.0, "SamplesPerSecond": 80.0, "PercentDone": 25.0, "PausedSeconds": 1.5}


def theirs(values: dict[str, float], units: dict[str, str]) -> dict[str, Any]:
    metrics = EphemeralMetrics(namespace=NAMESPACE)
    metrics.add_dimension("table", "facts-1")
    metrics.add_dimension("cluster", "demo")
    for name, value in values.items():
        metrics.add_metric(name, units[name], value)
    return dict(metrics.serialize_metric_set())


def comparable(line: dict[str, Any]) -> dict[str, Any]:
    """Without the time; a value is as good as a list of one."""
    assert isinstance(line["_aws"].pop("Timestamp"), int)
    return {name: value[0] if isinstance(value, list) else value for name, value in line.items()}


def test_a_job_report_moves_its_clusters_gauges_and_a_report_that_comes_twice_does_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    world = World()
    master, worker = world.launch(1), world.launch(2)
    more = {"progress": {"fraction": 0.25}, "history": {"paused_seconds": 1.5}}
    report = world.job_event(master, worker, samples_per_second=80.0, **more)
    world.hear(report)
    assert world.gauges.pop("demo") == REPORTED
    world.hear(report)
    assert world.gauges == {}
    world.hear(world.job_event(master, worker, samples_per_second=80.0, state="finished"))
    assert world.gauges["demo"] == {"Workers": 0.0, "SamplesPerSecond": 0.0}

    EmbeddedMetrics("facts-1").gauges("demo", REPORTED)
    assert comparable(json.loads(capsys.readouterr().out)) == comparable(theirs(REPORTED, GAUGE_UNITS))


def test_every_gauge_has_a_unit_that_cloudwatch_knows() -> None:
    assert set(REPORTED) == set(GAUGE_UNITS)
    assert theirs(REPORTED, GAUGE_UNITS)  # raises for a unit that is none


def test_a_count_is_of_the_deployment_and_of_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    name = METRICS[0]
    EmbeddedMetrics("facts-1").count(name, "demo", 3)
    line = comparable(json.loads(capsys.readouterr().out))
    definition = line["_aws"]["CloudWatchMetrics"][0]
    assert definition["Dimensions"].pop(0) == ["table"]
    assert line == comparable(theirs({name: 3.0}, {name: "Count"}))
