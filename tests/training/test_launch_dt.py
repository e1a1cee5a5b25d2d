"""The command line of Dynamic Training's document as typed, and its scripts as they are, in jobs of two workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training import examples
from dyntrain.training.examples.cifar10_data import generate

pytestmark = pytest.mark.jobs

LAUNCH = "python -m dyntrain.training.launch --launcher local"  # the document's launch.py
WORKERS = "-n $DEEPLEARNING_WORKERS_COUNT -H $DEEPLEARNING_WORKERS_PATH --elastic-training-enabled True"
TYPED = "--gpus $(seq -s , 0 1 $(($DEEPLEARNING_WORKER_GPU_COUNT - 1))) --network resnet --kv-store dist_device_sync"
OURS = Path(examples.__path__[0]) / "train_cifar10.py"
THEIRS = Path(__file__).parent / "dt_style" / "train_cifar10.py"


def _run(folder: Path, line: str) -> str:
    (folder / "workers").write_text("127.0.0.1\n127.0.0.2\n")
    generate(folder / "data", 16, 8)
    settings = {"COUNT": "2", "PATH": str(folder / "workers")}
    environment = {f"DEEPLEARNING_WORKERS_{name}": value for name, value in settings.items()}
    environment |= {"DEEPLEARNING_WORKER_GPU_COUNT": "0", "EFS_MOUNT": str(folder), "OMP_NUM_THREADS": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patient(100),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def test_launch_dt_the_documents_command_line_works_as_typed(tmp_path: Path) -> None:
    small = "--num-examples 16 --batch-size 4 --num-epochs 1 --model-prefix model"
    log = _run(tmp_path, f"{LAUNCH} {WORKERS} python {OURS} {TYPED} --num-layers 50 {small}")
    assert log.count("Epoch[0] Validation-accuracy") == 2, "both trained"
    assert {path.name for path in tmp_path.glob("*model*")} == {"model-symbol.json", "model-0001.params"}


def test_launch_dt_scripts_that_import_mxnet_run_as_they_are(tmp_path: Path) -> None:
    data = "--data-train data/cifar10_train.rec --data-val data/cifar10_val.rec"
    small = "--num-examples 16 --batch-size 4 --num-epochs 1"
    line = f"{LAUNCH} --dt-scripts {WORKERS} python {THEIRS} --network resnet --kv-store dist_sync {data} {small}"
    assert _run(tmp_path, line).count("Epoch[0] Validation-accuracy") == 2
