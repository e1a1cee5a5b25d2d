"""`python -m dyntrain.training.launch` as people use it: real processes, an edited host_worker, a real sshd."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training.launch.command import node_command
from dyntrain.training.launch.plan import LaunchError, parse
from launched_job import Launched, listening
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator

pytestmark = pytest.mark.jobs


@pytest.mark.pslite
def test_launch_m1_m2_hosts_join_and_leave_by_edits_of_host_worker(launched: Callable[..., Launched]) -> None:
    elsewhere = ["--events", "record/events.jsonl", "--checkpoint-dir", "kept", "--segment-steps", "3"]
    elsewhere += ["--tensorboard", "curves"]
    job = launched("-n", "1", "-s", "all", "--launcher", "local", *elsewhere)
    job.wait_for(r"epoch 0 .* workers 1")
    first = [line.split(" INFO ")[1].split(" /")[0] for line in job.log.splitlines() if " INFO " in line]
    assert first[:2] == ["Created worker host file", "Created worker host log file"]
    assert "INFO Launching server node at ip: 127.0.0.1" in job.log
    assert "INFO Launching worker node at ip: 127.0.0.1" in job.log
    job.edit("127.0.0.9", "127.0.0.1")
    job.wait_for("Launching server node at ip: 127.0.0.9")
    job.wait_for("Launching worker node at ip: 127.0.0.9")
    job.wait_for(r"epoch \d+ .* workers 2")
    job.edit("127.0.0.9")
    job.wait_for("lacks a base host")
    job.edit("127.0.0.1")
    job.wait_for(r"i-\w+ left")
    job.wait_for(r"workers 2(.*\n)+.* workers 1 ")
    assert job.go() == 0
    changes = [line.split()[:3] for line in (job.folder / "host_worker_log").read_text().splitlines()]
    assert changes == [["0", "ADDED", "127.0.0.1"], ["1", "ADDED", "127.0.0.9"], ["2", "REMOVED", "127.0.0.9"]]
    events = [json.loads(line) for line in (job.folder / "record" / "events.jsonl").open()]
    (journal,) = (job.folder / "dyntrain").rglob("journal.jsonl")
    settled = [entry["hosts"] for entry in map(json.loads, journal.open()) if "hosts" in entry]
    assert [len(hosts) for hosts in settled] == [1, 2, 1], "who joins serves as well, and takes its server along"
    causes = [event["cause"] for event in events if event["event"] == "forming"]
    assert causes == ["the job starts", "written into host_worker", "taken out of host_worker"]
    formed = [event for event in events if event["event"] == "formed"]
    assert [len(event["members"]) for event in formed] == [1, 2, 1]
    assert all(event["generation"] and event["phases"] for event in formed)
    assert list((job.folder / "kept").rglob("*.commit"))
    assert not list((job.folder / "dyntrain").rglob("*.commit"))
    (run,) = (job.folder / "curves").iterdir()
    assert run.name == next((job.folder / "dyntrain").rglob("events.jsonl")).parent.name
    drawn = [event.step for event in EventAccumulator(str(run)).Reload().Tensors("metrics/loss")]
    assert drawn == [event["to"]["step"] for event in events if event["event"] == "segment"], "to the last one"
    assert re.search(r"epoch \d+ step \d+ generation \d+ workers 1 \d+ samples/s loss=\d", job.log), (
        "what people look at while it trains"
    )
    assert job.ended() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_launch_the_launchers_end_is_the_end_of_everything(launched: Callable[..., Launched], number: int) -> None:
    job = launched("-n", "1", "--launcher", "local", "--elastic-training-enabled", "False", script=("--child",))
    job.wait_for(r"epoch 0 .* workers 1")
    ports = job.ports()
    assert not (job.folder / "host_worker").exists(), "False really means false"
    job.process.send_signal(number)
    assert job.process.wait(patient(30)) == (130 if number == signal.SIGINT else -number)
    assert job.ended() == []
    assert ports, "the coordinator, ps-lite and the worker listened"
    assert not ports & listening()


@pytest.mark.openssh
def test_launch_killed_while_it_trains_over_ssh_leaves_nothing_there(
    launched: Callable[..., Launched], ssh_environment: dict[str, str], tmp_path: Path
) -> None:
    """Nobody is left to tell the hosts: a process that stayed would hold their memory and GPUs for ever."""
    (tmp_path / "hosts").write_text("127.0.0.1\n")
    job = launched("-n", "1", "-H", str(tmp_path / "hosts"), environment=ssh_environment, script=("--child",))
    job.wait_for(r"epoch 0 .* workers 1")
    ports = job.ports()
    job.process.kill()
    assert job.process.wait(patient(30)) == -signal.SIGKILL
    assert job.ended() == []
    assert ports
    assert not ports & listening()


@pytest.mark.openssh
def test_launch_ssh_trains_on_hosts_behind_a_real_sshd(
    launched: Callable[..., Launched], ssh_environment: dict[str, str], tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1\n127.0.0.2\n")
    copied = tmp_path / "copied over there"
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "train.py").write_text("print('the script')\n")
    job = launched(
        "-n", "2", "-H", str(hosts), "--launcher", "ssh", "--sync-dst-dir", str(copied), environment=ssh_environment
    )
    job.wait_for(r"epoch \d+ .* workers 2")
    assert (tmp_path / "sshd.log").read_text().count("Accepted publickey") == 4, "a copy and a node on each host"
    assert (copied / "train.py").read_text() == "print('the script')\n"
    assert not (copied / "dyntrain").exists(), "the job's own files are no part of the script"
    assert job.pids("tiny_job", copied), "the workers run where they were copied to"
    assert job.go() == 0
    assert "job finished" in job.log
    assert job.ended() == job.ended(copied) == []


def test_launch_takes_every_flag_of_dynamic_training_and_quotes_what_a_remote_shell_reads(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1\n127.0.0.2\n127.0.0.3\n")
    flags = [
        "--num-workers",
        "2",
        "--num-servers",
        "1",
        "--hostfile",
        str(hosts),
        "--launcher",
        "ssh",
        "--env",
        "A:1",
        "--env-server",
        "B:2",
    ]
    more = [
        "--env-worker",
        "C:3",
        "--sync-dst-dir",
        "/tmp/x; rm -rf y",
        "--elastic-training-enabled",
        "False",
        "--host",
        "127.0.0.7",
        "--port",
        "9",
        "--dt-scripts",
    ]
    plan = parse([*flags, *more, "python", "train.py", "--kv-store", "dist_device_sync"])
    assert (plan.hosts, plan.servers, plan.elastic, plan.host, plan.port) == (
        ("127.0.0.1", "127.0.0.2"),
        1,
        False,
        "127.0.0.7",
        9,
    )
    assert (plan.worker_environment, plan.server_environment) == ({"A": "1", "C": "3"}, {"A": "1", "B": "2"})
    assert plan.dt_scripts
    assert plan.command == ("python", "train.py", "--kv-store", "dist_device_sync")
    assert node_command(plan, ("--", "127.0.0.1"), tmp_path)[-1].startswith("cd '/tmp/x; rm -rf y' && exec ")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["-n", "1", "--launcher", "local"], "no training command"),
        (["-n", "0", "--launcher", "local", "x"], "at least 1"),
        (["-n", "1", "x"], "needs -H"),
        (["-n", "1", "-H", "/nonexistent", "x"], "/nonexistent"),
        (["-n", "2", "-s", "3", "--launcher", "local", "x"], "--num-servers 3"),
        (["-n", "2", "-s", "some", "--launcher", "local", "x"], "must be all, or between 1 and"),
        (["-n", "1", "--launcher", "local", "--env", "no name", "x"], "NAME:VALUE"),
        (
            ["-n", "1", "--launcher", "local", "--checkpoint-dir", "s3://data/c", "x"],
            "--checkpoint-dir s3:/data/c is an",
        ),
        (["-n", "1", "--launcher", "local", "--events", "gs://data/e", "x"], "--events gs:/data/e is an address"),
        (
            ["-n", "1", "--launcher", "local", "--tensorboard", "gs://data/r", "x"],
            "no folder and no s3://BUCKET/PREFIX",
        ),
        (
            ["-n", "1", "--launcher", "local", "--tensorboard", "S3://data/r", "x"],
            "no folder and no s3://BUCKET/PREFIX",
        ),
        (["-n", "1", "--launcher", "local", "cd x && python train.py"], "put bash -c in front"),
        (["-n", "1", "--launcher", "local", "python train.py", "--lr", "1"], "remove the quotes"),
    ],
)
def test_launch_says_what_is_wrong_with_a_command_line(argv: list[str], message: str) -> None:
    with pytest.raises(LaunchError) as caught:
        parse(argv)
    assert message in str(caught.value)


def test_a_command_in_quotes_is_taken_word_by_word_as_mxnets_own_launcher_does() -> None:
    """Else it is no program, which twelve starts later is exit code 127."""
    assert parse(["-n", "1", "--launcher", "local", "python train.py --lr '0 1'"]).command == (
        *("python", "train.py"),
        *("--lr", "0 1"),
    )


def test_launch_a_killed_worker_is_replaced_by_a_warm_spare(launched: Callable[..., Launched]) -> None:
    job = launched("-n", "1", "--launcher", "local", "--warm-spares", "1", "--events", "events.jsonl")
    job.wait_for(r"epoch 0 .* workers 1")
    job.wait_for(r"a warm spare stands by")
    [first] = job.events("worker_started")
    os.kill(first["pid"], signal.SIGKILL)
    job.wait_for(r"(?s)joined.*joined")
    [_, promoted] = job.events("worker_started")
    ready = job.events("worker_ready")[-1]
    assert job.go() == 0
    assert (first["spare"], promoted["spare"]) == (False, True)
    assert (ready["pid"], ready["spare"]) == (promoted["pid"], True)
    assert 0 <= ready["seconds"] < 60, "how long the promotion took"
    assert [event["pid"] for event in job.events("joined")] == [first["pid"], promoted["pid"]]
