"""A Dynamic Training script must run with its imports of MXNet changed and nothing else: this is what its users come with."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_bed import JobBed, instance

from training.examples.cifar10_data import generate

THEIRS = Path(__file__).parent / "dt_style"
IMPORT, OURS = "import mxnet as mx\n", "import training.elastic_mxnet as mx\n"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Their files with the import line changed in each that has one."""
    for file in THEIRS.rglob("*.py"):
        text = file.read_text()
        assert text.count(IMPORT) == 1
        target = tmp_path / "script" / file.relative_to(THEIRS)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace(IMPORT, OURS))
    generate(tmp_path / "data", 120, 40)
    return tmp_path / "script" / "train_cifar10.py"


def arguments(script: Path) -> list[str]:
    data = script.parents[1] / "data"
    return [str(script), "--data-train", str(data / "cifar10_train.rec"), "--data-val", str(data / "cifar10_val.rec")]


@pytest.fixture
def bed(script: Path, tmp_path: Path) -> Iterator[JobBed]:
    """Their script has no brake, so the job is longer than any test waits; it ends with the test."""
    command = [sys.executable, *arguments(script), "--kv-store", "dist_device_sync", "--num-epochs", "100000", "--lr-step-epochs", "99998,99999"]
    bed = JobBed(tmp_path, command, workers=1)
    yield bed
    bed.close()


def test_face_a_dynamic_training_script_trains_elastically(bed: JobBed) -> None:
    bed.begin("A")
    bed.add_node("B")
    bed.want("AB")
    bed.wait_for(bed.saw("joined", "B"), 60, "B joins")
    last = bed.wait_for(lambda: next((event for event in bed.events("segment") if event["workers"] == 2), None), 60, "an epoch of both")
    assert set(last["metrics"]) == {"accuracy", "top_k_accuracy_3", "val_accuracy", "val_top_k_accuracy_3"}, "what people look at while it trains"
    assert last["metrics"]["accuracy"] > 0.2, "better than guessing"
    log = (bed.folder / f"worker-{instance('A')}.log").read_text()
    assert re.findall(r"worker (\d of \d): (\d+) batches", log)[-1] == ("0 of 2", "6")
    assert "Validation-accuracy" in log
    assert len(bed.supervisors[instance("A")].pids) == 1


def test_face_their_checkpoint_is_gone_on_from_and_compression_is_refused_by_name(script: Path, tmp_path: Path) -> None:
    def run(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments(script), "--kv-store", "dist_sync", "--model-prefix", str(tmp_path / "alone"), *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=100)

    assert run("--num-epochs", "1").returncode == 0
    again = run("--num-epochs", "3", "--load-epoch", "1")
    assert re.findall(r"Epoch\[(\d)\] Train-accuracy", again.stderr) == ["1", "2"]
    assert "train without it" in run("--gc-type", "2bit").stderr
