"""`dyntrain status` and `explain` as people meet them, on a world in memory where that is enough, else as a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import SUFFIX, World

from controller.cli import _cluster_text, _explained
from controller.errors import GiveUp
from controller.reading import cluster_of_instance, explanation, snapshot, summary

ROOT = Path(__file__).parents[2]


def story() -> tuple[World, str, str]:
    world = World()
    master, failed = world.launch(1, base=True, NodeType="Master"), world.launch(2)
    world.hear(world.report(master), world.tag(failed), world.report(failed, "prepare_failed", reason="line one\nValueError: no data"))
    world.wait(1)
    world.hear(world.job_event(master, revision=1, epoch=3, epochs=10, step=77, samples_per_second=123.0, generation=4))
    return world, master, failed


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS")}
    isolated = {**clean, "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nonexistent", "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent"}
    command = [sys.executable, "-m", "controller.cli", *arguments]
    return subprocess.run(command, env={**isolated, **environment}, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_status_shows_nodes_with_rank_and_reason_and_the_job() -> None:
    world, master, failed = story()
    seen = summary(snapshot(world.ports, world.registry, "demo", SUFFIX))
    assert [(row["instance"], row["status"], row["rank"], row["generation"]) for row in seen["nodes"]] == [
        (master, "ADDED", 0, 4),
        (failed, "PREPARE_FAILED", None, None),
    ]
    assert (seen["job"]["epoch"], seen["job"]["step"], seen["job"]["workers"], seen["job"]["samples_per_second"]) == (3, 77, 1, 123.0)
    assert seen["nodes"][0]["since"] == world.now
    assert json.loads(json.dumps(seen)) == seen


def test_the_table_says_in_one_row_why_a_preparation_failed() -> None:
    world, _, failed = story()
    text = _cluster_text(summary(snapshot(world.ports, world.registry, "demo", SUFFIX)))
    row = next(line for line in text.splitlines() if line.startswith(failed))
    assert "PREPARE_FAILED" in row
    assert "ValueError: no data" in row
    assert "epoch 3/10, step 77, 1 workers, 123 samples/s" in text


def test_explain_gives_the_facts_behind_a_status() -> None:
    world, _, failed = story()
    found = explanation(snapshot(world.ports, world.registry, cluster_of_instance(world.ports, world.registry, failed), SUFFIX), failed)
    assert found["facts"]["preparation"]["reason"] == "line one\nValueError: no data"
    assert (found["status"], found["effective"]["wanted"]) == ("PREPARE_FAILED", True)
    assert "reason: PREPARE_FAILED" in _explained(found)


def test_an_unknown_cluster_and_an_unknown_instance_are_one_clear_line() -> None:
    world, _, _ = story()
    with pytest.raises(GiveUp, match=r"no cluster 'nope' is registered \(known: demo\)"):
        snapshot(world.ports, world.registry, "nope", SUFFIX)
    with pytest.raises(GiveUp, match="nothing is known of i-00000000"):
        cluster_of_instance(world.ports, world.registry, "i-00000000")
    assert "nope" not in world.registry.all()


def test_an_invalid_policy_is_named_when_its_cluster_is_asked_for() -> None:
    world = World()
    world.parameters["/dyntrain/bad/policy"] = '{"cluster": "bad", "min_workers": 0}'
    with pytest.raises(GiveUp, match="min_workers"):
        snapshot(world.ports, world.registry, "bad", SUFFIX)
    assert "bad" in world.registry.problems()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "no AWS region"),
        ({"AWS_DEFAULT_REGION": "eu-central-1"}, "no AWS credentials"),
        (
            {
                "AWS_DEFAULT_REGION": "eu-central-1",
                "AWS_ACCESS_KEY_ID": "x",
                "AWS_SECRET_ACCESS_KEY": "x",
                "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
            },
            "Could not connect",
        ),
        ({"DYNTRAIN_TABLE": ""}, "DYNTRAIN_TABLE is empty"),
    ],
)
def test_what_is_missing_in_the_environment_is_one_line_and_not_success(environment: dict[str, str], said: str) -> None:
    done = run("status", **environment)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("explain", "nonsense"), "'nonsense' is no instance id"),
        (("events", "--since", "soon"), "--since 'soon' is neither a span"),
        (("events", "--since", "2026-13-45"), "--since '2026-13-45' is neither a span"),
        (("pool", "plan", "--from-file", "/"), "/ cannot be read: Is a directory"),
        (("status",), "Invalid endpoint: not a url; check region, profile and AWS_ENDPOINT_URL"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_asked_of_aws(arguments: tuple[str, ...], said: str) -> None:
    environment = {"AWS_DEFAULT_REGION": "eu-west-3", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_ENDPOINT_URL": "not a url"}
    done = run(*arguments, **environment)
    assert (done.returncode, len(done.stderr.strip().splitlines())) == (1, 1), done.stderr
    assert said in done.stderr


def test_without_moto_the_local_commands_name_the_extra(tmp_path: Path) -> None:
    (tmp_path / "moto.py").write_text("raise ImportError('no moto here')\n")
    done = run("local", "up", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert "install dyntrain[local]" in done.stderr
