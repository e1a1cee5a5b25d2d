"""`dyntrain launch` on a node of a cluster, before anything is asked of anybody."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from dyntrain.training import events
from dyntrain.training.launch.plan import LaunchError, is_for_cluster, parse_for_cluster
from dyntrain.training.protocol.launch_desk import QUESTION_ADAPTER, Reply
from terminal import Terminal

QUESTION = "End the job on all nodes? [y/N]"


def test_the_launchers_flags_mean_the_cluster_where_they_name_it(tmp_path: Path) -> None:
    workers, other = tmp_path / "workers", tmp_path / "hosts"
    workers.touch()
    typed_in = ["-n", "2", "-H", str(workers), "--elastic-training-enabled", "True", "python", "train.py", "-n", "9"]
    assert is_for_cluster(typed_in, str(workers))
    assert is_for_cluster(["python", "train.py"], None)
    assert not is_for_cluster(["-n", "2", "-H", str(other), "python", "train.py"], str(workers))
    assert not is_for_cluster(["-n", "2", "--launcher", "local", "python", "train.py"], str(workers))
    assert parse_for_cluster([*typed_in]).command == ("python", "train.py", "-n", "9")
    assert parse_for_cluster(["python train.py -n 9"]).command == ("python", "train.py", "-n", "9")
    assert parse_for_cluster(["--env", "COLOUR:red", "--dt-scripts", "x"]).environment == {"COLOUR": "red"}
    with pytest.raises(LaunchError, match="--warm-spares, --segment-steps cannot be given on a cluster"):
        parse_for_cluster(["--warm-spares", "1", "--segment-steps", "5", "python", "train.py"])
    with pytest.raises(LaunchError, match="no training command"):
        parse_for_cluster(["-n", "2"])


def test_a_node_that_takes_no_launches_says_where_one_does(tmp_path: Path) -> None:
    environment = {**os.environ, "DYNTRAIN_LAUNCH_SOCKET": str(tmp_path / "launch.sock")}
    command = [sys.executable, "-m", "dyntrain.training.launch", "python", "train.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, "log in on the master" in done.stderr) == (2, True), done.stderr


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[list[str]]:
    """A node that takes whatever it is asked, and what that was. Where the end is asked for, the job ends."""
    requests: list[str] = []
    record, log = tmp_path / "events.jsonl", tmp_path / "worker.log"
    record.touch()
    log.touch()
    reply = Reply(job="job-1", directory=str(tmp_path), events=str(record), log=str(log))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "launch.sock"))
    listening.listen()

    def serve() -> None:
        while True:
            try:
                line, _ = listening.accept()
            except OSError:
                return
            with line, line.makefile("rb") as stream:
                requests.append(QUESTION_ADAPTER.validate_json(stream.readline()).ask)
                if requests[-1] == "end":
                    record.write_bytes(events.Failed(at=1.0, reason="a person ended it").line())
                line.sendall(reply.model_dump_json().encode() + b"\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield requests
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join()


def launched(tmp_path: Path) -> Terminal:
    environment = {**os.environ, "DYNTRAIN_LAUNCH_SOCKET": str(tmp_path / "launch.sock")}
    terminal = Terminal([sys.executable, "-m", "dyntrain.training.launch", "python", "train.py"], 30.0, environment)
    terminal.wait_for("job-1 runs on the cluster")
    return terminal


def test_who_says_no_to_the_end_leaves_the_job_alone(tmp_path: Path, desk: list[str]) -> None:
    person = launched(tmp_path)
    person.interrupt()
    person.wait_for(QUESTION)
    person.type("n")
    assert (person.ends(), person.shows("job-1 continues")) == (130, True)
    assert desk == ["launch"]


def test_a_second_ctrl_c_is_no_yes(tmp_path: Path, desk: list[str]) -> None:
    person = launched(tmp_path)
    person.interrupt()
    person.wait_for(QUESTION)
    person.interrupt()
    assert (person.ends(), desk) == (130, ["launch"])


def test_who_says_yes_sees_the_job_end(tmp_path: Path, desk: list[str]) -> None:
    person = launched(tmp_path)
    person.interrupt()
    person.wait_for(QUESTION)
    person.type("y")
    assert (person.ends(), person.shows("a person ended it")) == (1, True)
    assert desk == ["launch", "end"]
