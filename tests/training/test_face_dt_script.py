"""A Dynamic Training script must run as it is: this is what its users come with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training.dt_scripts import PATH_VARIABLE, environment
from dyntrain.training.examples.cifar10_data import generate
from job_bed import JobBed, instance

THEIRS = Path(__file__).parent / "dt_style" / "train_cifar10.py"  # each file of it says `import mxnet as mx`


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    generate(tmp_path, 120, 40)
    data = ["--data-train", str(tmp_path / "cifar10_train.rec"), "--data-val", str(tmp_path / "cifar10_val.rec")]
    return [str(THEIRS), *data]


@pytest.fixture
def bed(arguments: list[str], tmp_path: Path) -> Iterator[JobBed]:
    """Their script has no brake, so the job is longer than any test waits; it ends with the test."""
    command = [
        "env",
        f"{PATH_VARIABLE}={environment({}, os.environ)[PATH_VARIABLE]}",
        sys.executable,
        *arguments,
        "--kv-store",
        "dist_device_sync",
        "--num-epochs",
        "100000",
        "--lr-step-epochs",
        "99998,99999",
    ]
    bed = JobBed(tmp_path, command, workers=1)
    yield bed
    bed.close()


@pytest.mark.jobs
def test_face_a_dynamic_training_script_trains_elastically(bed: JobBed) -> None:
    bed.begin("A")
    bed.add_node("B")
    bed.want("AB")
    bed.wait_for(bed.saw("joined", "B"), 60, "B joins")
    last = bed.wait_for(
        lambda: next((event for event in bed.events("segment") if event["workers"] == 2), None), 60, "an epoch of both"
    )
    assert set(last["metrics"]) == {"accuracy", "top_k_accuracy_3", "val_accuracy", "val_top_k_accuracy_3"}, (
        "what people look at while it trains"
    )
    assert last["metrics"]["accuracy"] > 0.2, "better than guessing"
    log = (bed.folder / f"worker-{instance('A')}.log").read_text()
    assert re.findall(r"worker (\d of \d): (\d+) batches", log)[-1] == ("0 of 2", "6")
    assert "Validation-accuracy" in log
    assert len(bed.supervisors[instance("A")].pids) == 1


@pytest.mark.jobs
def test_face_their_checkpoint_is_gone_on_from_and_compression_is_refused_by_name(
    arguments: list[str], tmp_path: Path
) -> None:
    elastic = environment(os.environ, {})

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        command = [
            sys.executable,
            *arguments,
            "--kv-store",
            "dist_sync",
            "--model-prefix",
            str(tmp_path / "alone"),
            *more,
        ]
        return subprocess.run(command, env=elastic, capture_output=True, text=True, timeout=patient(100))

    assert run("--num-epochs", "1").returncode == 0
    again = run("--num-epochs", "3", "--load-epoch", "1")
    assert re.findall(r"Epoch\[(\d)\] Train-accuracy", again.stderr) == ["1", "2"]
    assert "train without it" in run("--gc-type", "2bit").stderr
