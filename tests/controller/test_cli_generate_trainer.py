"""TensorFlow as the template's document starts it: one command writes the scripts, a loop of `ssh` runs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from click.testing import CliRunner
from dyntrain.controller.cli.main import main
from dyntrain.controller.local.pace import patient
from dyntrain.training.launch.parameter_servers import hosts_of
from waiting import wait_for

# It says what it was told, and serves until it may end.
STAND_IN = """
import json, os, pathlib, sys, time
print(json.dumps({"argv": sys.argv[1:], "gpu": os.environ["CUDA_VISIBLE_DEVICES"]}), flush=True)
until = time.monotonic() + 600
while not pathlib.Path(__file__).with_name("over").exists() and time.monotonic() < until:
    time.sleep(0.05)
"""
TYPED = r"""
dyntrain generate-trainer --workers_file_path $DEEPLEARNING_WORKERS_PATH \
  --worker_count $DEEPLEARNING_WORKERS_COUNT \
  --worker_gpu_count $DEEPLEARNING_WORKER_GPU_COUNT \
  --trainer_script_dir $EFS_MOUNT/tensorflow \
  --training_script "$EFS_MOUNT/multi machine.py" \
  --batch_size 128 --data_dir=$EFS_MOUNT/cifar10_data \
  --train_dir=$EFS_MOUNT/tensorflow/train \
  --log_dir $EFS_MOUNT/tensorflow/logs --python $STAND_IN_PYTHON \
  --max_steps 200000
trainer_script_dir=$EFS_MOUNT/tensorflow && while read -u 10 host; \
do ssh -o "StrictHostKeyChecking no" $host "bash $trainer_script_dir/$host.sh" ; \
done 10<$DEEPLEARNING_WORKERS_PATH
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    (tmp_path / "over").touch()


def _typed(folder: Path, hosts: str, gpus: int) -> None:
    (folder / "multi machine.py").write_text(STAND_IN)
    (folder / "workers").write_text(hosts)
    (folder / "ssh").write_text('#!/bin/sh\nexec sh -c "$4"\n')  # after -o, its value and the host
    (folder / "ssh").chmod(0o755)
    environment = {"EFS_MOUNT": str(folder), "STAND_IN_PYTHON": sys.executable, "DEEPLEARNING_WORKERS_COUNT": "2"}
    environment |= {"DEEPLEARNING_WORKERS_PATH": str(folder / "workers"), "DEEPLEARNING_WORKER_GPU_COUNT": str(gpus)}
    environment["PATH"] = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    # Through pipes, as from ssh: what is started must not keep them open.
    subprocess.run(
        ["bash", "-ec", TYPED], env={**os.environ, **environment}, check=True, capture_output=True, timeout=patient(30)
    )


def _arguments(folder: Path, name: str) -> dict[str, object]:
    log = folder / "tensorflow" / "logs" / name
    wait_for(lambda: log.exists() and log.read_text().endswith("\n"), 20, lambda: f"{name} says what it was told")
    arguments: dict[str, object] = json.loads(log.read_text())
    return arguments


def test_generate_trainer_the_documents_commands_start_servers_and_workers_on_each_host(folder: Path) -> None:
    _typed(folder, "10.0.0.25\n10.0.1.207\n", gpus=2)
    own = ["--batch_size", "128", f"--data_dir={folder}/cifar10_data", f"--train_dir={folder}/tensorflow/train"]
    own += ["--max_steps", "200000", "--ps_hosts=10.0.0.25:2222,10.0.1.207:2222"]
    own += ["--worker_hosts=10.0.0.25:2230,10.0.0.25:2231,10.0.1.207:2230,10.0.1.207:2231"]
    for host in range(2):
        part = [*own, "--job_name=ps", f"--task_index={host}"]
        assert _arguments(folder, f"ps{host}") == {"argv": part, "gpu": ""}, "servers take no GPU from workers"
    for task in range(4):
        part = [*own, "--job_name=worker", f"--task_index={task}"]
        assert _arguments(folder, f"worker{task}") == {"argv": part, "gpu": str(task % 2)}


def test_generate_trainer_hosts_without_gpus_have_one_worker_each(folder: Path) -> None:
    _typed(folder, "10.0.0.25\n10.0.1.207\n", gpus=0)
    assert "--task_index=1" in str(_arguments(folder, "worker1")["argv"])
    assert {path.name for path in (folder / "tensorflow" / "logs").iterdir()} == {"ps0", "ps1", "worker0", "worker1"}


def test_generate_trainer_the_documents_loop_works_after_nodes_have_joined_or_left(folder: Path) -> None:
    """The count is of the login, the list of now: the loop goes to each host that is listed."""
    _typed(folder, "10.0.0.25\n10.0.0.9\n10.0.1.207\n", gpus=0)
    assert "--ps_hosts=10.0.0.25:2222,10.0.0.9:2222" in cast("list[str]", _arguments(folder, "ps1")["argv"])
    assert "no part in this training" in (folder / "tensorflow" / "10.0.1.207.sh").read_text()
    shutil.rmtree(folder / "tensorflow")
    _typed(folder, "10.0.0.25\n", gpus=0)
    assert "--ps_hosts=10.0.0.25:2222" in cast("list[str]", _arguments(folder, "ps0")["argv"])


def test_generate_trainer_says_what_is_wrong_with_the_workers_file(tmp_path: Path) -> None:
    workers = tmp_path / "workers"
    typed = ["generate-trainer", "--workers_file_path", str(workers), "--worker_count", "2", "--worker_gpu_count", "0"]
    typed += ["--trainer_script_dir", str(tmp_path / "out"), "--training_script", "train.py"]
    assert hosts_of(b"# ours\r\na slots=8\r\n\r\nb\nc\n", "f") == ("a", "b", "c")
    for text, message in (
        ("# none\n", "names no host"),
        ("a\n../b\n", "'../b' is no host"),
        ("a\n-b\n", "'-b' is no host"),
    ):
        workers.write_text(text)
        result = CliRunner().invoke(main, typed)
        assert result.exit_code == 1
        assert message in result.output
    workers.unlink()
    assert "workers" in CliRunner().invoke(main, typed).output
    assert not (tmp_path / "out").exists()
