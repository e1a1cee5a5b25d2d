"""Help shows how a command is typed, and what it shows works."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from dyntrain.controller.cli.commands.clusters import cluster_table
from dyntrain.controller.cli.commands.events import trail_line
from dyntrain.controller.cli.main import main
from dyntrain.controller.contract.messages import ClusterPolicy
from dyntrain.controller.core.history.trail import PoolDecided
from dyntrain.controller.loops.ports import TrailEntry
from typed_commands import commands, parsed

EVERY = {path: command for path, command in commands() if path != "launch"}  # argparse tells that one's help


@pytest.mark.parametrize("path", EVERY)
def test_every_help_has_examples_that_can_be_typed(path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("policy.json", "inputs.json"):
        Path(file).write_text("{}")
    shown = CliRunner().invoke(main, [*path.split(), "-h"], terminal_width=200).output
    _, _, examples = shown.partition("Examples:")
    lines = [line.strip() for line in examples.splitlines() if line.strip().startswith("dyntrain ")]
    assert lines, shown
    for line in lines:
        typed = line.split("     ")[0].split(" | ")[0].split(" > ")[0]
        assert parsed(typed).startswith(path), line


FACTS = (
    "cluster list",
    "cluster show",
    "cost",
    "doctor",
    "events",
    "explain",
    "job list",
    "job status",
    "model",
    "pool plan",
    "replay",
    "report",
    "status",
)


@pytest.mark.parametrize("path", FACTS)
def test_every_command_that_tells_facts_tells_them_as_json_too(path: str) -> None:
    options = {option: one for one in EVERY[path].params for option in one.opts}
    assert list(options["--output"].type.to_info_dict()["choices"]) == ["json", "table", "wide"]
    assert "--json" in options


def test_clusters_are_listed_with_as_many_columns_as_there_is_room_for() -> None:
    policies = {"demo": ClusterPolicy(cluster="demo", groups=("demo-workers", "spot"), stage="prod")}
    problems = {"bad": "max_workers: \x1b[2Jmust be more"}
    lines = cluster_table(policies, problems, None, wide=True)
    assert lines[0].split() == ["cluster", "workers", "groups", "stage", "boundary", "pool"]
    assert lines[1].split()[:6] == ["demo", "1", "to", "64", "demo-workers,", "spot"]
    assert "INVALID  max_workers:" in lines[2]
    assert "\x1b" not in lines[2]
    narrow = cluster_table(policies, problems, 12, wide=False)
    assert narrow[0].split() == ["cluster"]


def test_a_wide_trail_shows_what_a_pools_decision_was_made_of() -> None:
    looked = PoolDecided(
        why="IDLE", dry_run="no", current=1, held=1, spare=2, proposal=3, target=3, inputs='{"at": 1.0}'
    )
    entry = TrailEntry(1.0, looked)
    assert 'inputs={"at": 1.0}' in trail_line("demo", entry, wide=True)
    assert "inputs" not in trail_line("demo", entry)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("stauts", "Did you mean 'status'?"),
        ("clusters list", "Did you mean 'cluster'?"),
        ("local demoo", "demo"),
        ("scale demo -1", "-1 is no number of workers: it must be 0 or more."),
        ("scale demo --dryrun 1", "--dry-run"),
        ("cost demo --cluster other", "demo and --cluster other exclude each other: give one of them"),
    ],
)
def test_what_is_mistyped_is_answered_with_what_was_meant(typed: str, message: str) -> None:
    result = CliRunner().invoke(main, shlex.split(typed))
    assert result.exit_code == 2
    assert message in result.output


def test_a_name_that_is_like_no_command_is_not_guessed_at() -> None:
    result = CliRunner().invoke(main, ["quux"])
    assert (result.exit_code, "Did you mean" in result.output) == (2, False)
