"""What a node says of itself before it is prepared, and when it cannot be: user data, and a program that ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from dyntrain.controller.contract.reports import MAX_TEXT_LENGTH
from dyntrain.node_bootstrap.instance.metadata import MetadataClient
from dyntrain.node_bootstrap.node import CONFIGURATION, run_node
from dyntrain.node_bootstrap.reports.alive import NOT_REPORTED, REPORTED, report_user_data
from node_fakes import INSTANCE, QUICK, MemoryReports, World, world


def report(here: World, outcome: str, reason: str, seconds: float = 20.0, reports: MemoryReports | None = None) -> int:
    metadata = MetadataClient(here.metadata.url, QUICK)
    kind = "alive" if outcome == "alive" else "prepare_failed"
    return asyncio.run(report_user_data(metadata, lambda _region: reports or here.reports, 4, kind, reason, seconds))


def test_user_data_say_that_they_run_and_how_they_ended(tmp_path: Path) -> None:
    """By that the controller keeps the launch alive, and gives it up."""
    with world(tmp_path) as here:
        assert report(here, "alive", "it waits for /shared/prepare-data.py") == REPORTED
        assert report(here, "failed", "the user data ended at line 9" + "x" * MAX_TEXT_LENGTH) == REPORTED
        (alive,), (failed,) = here.reports.alive, here.reports.sent
        assert (alive.cluster, alive.instance_id, alive.attempt) == ("demo", INSTANCE, 4)
        assert (failed.outcome, len(failed.reason)) == ("prepare_failed", MAX_TEXT_LENGTH)
        assert failed.reason.startswith("the user data ended at line 9")


def test_an_event_bus_that_takes_nothing_does_not_hold_the_user_data_for_ever(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        assert report(here, "alive", "it waits", 0.2, MemoryReports(failures=10_000)) == NOT_REPORTED


def test_a_node_that_ends_for_a_person_says_why_to_the_controller_too(tmp_path: Path) -> None:
    """It looked as if it still prepared; the sentence was in its log alone."""
    with world(tmp_path) as here:
        assert asyncio.run(run_node(replace(here.dependencies(), packages=("no_such_package",)))) == CONFIGURATION
        (report,) = here.reports.sent
        assert report.outcome == "prepare_failed"
        assert "no_such_package is not installed for" in report.reason
