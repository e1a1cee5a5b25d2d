"""Scripts that cannot train as they are launched: the job ends at their first start, with what to do, and not after so
many tries that nobody looks any more.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from dyntrain import numpy_names
from dyntrain.controller.local.pace import patient
from dyntrain.training.worker.membership.client import CONTROL_FILE_VARIABLE

pytestmark = pytest.mark.jobs

GLUON = "from dyntrain import ElasticJob\nElasticJob.join({store!r})\n"
MODULE = "import dyntrain.training.elastic_mxnet as mx\nmx.kv.create({store!r})\n"
DT = {
    "its kvstore": "import mxnet as mx\nmx.kvstore.create('dist_device_sync')\n",
    "its iterator": "import mxnet as mx\nclass Data(mx.mod.BaseDataIterator):\n    pass\n",
    "imported by name": "from mxnet.module import BaseDataIterator\n",
    "a module's own store": (
        "import mxnet as mx\n"
        "module = mx.mod.Module(mx.sym.SoftmaxOutput(mx.sym.Variable('data'), name='softmax'))\n"
        "module.fit(mx.io.NDArrayIter(mx.nd.ones((4, 2)), mx.nd.ones(4), 2), num_epoch=1, kvstore='dist_sync')\n"
    ),
}


def launched(folder: Path, *command: str) -> str:
    """What a job that fails says, without the path of its own events at the end."""
    launch = [sys.executable, "-m", "dyntrain.training.launch", "-n", "1", "--launcher", "local"]
    done = subprocess.run(
        [*launch, *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("Launching worker node") == 1
    assert "cools down" not in done.stderr, done.stderr
    return done.stderr.partition("; what happened is in")[0]


@pytest.mark.parametrize("script", [GLUON, MODULE], ids=["gluon", "module"])
def test_launch_a_store_whose_updates_not_all_workers_make_is_refused_at_once(script: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(script.format(store="dist_async"))
    output = launched(tmp_path, "python", "train.py")
    assert output.count("dist_sync and dist_device_sync and dist_sync_device") == 1, output
    assert "the job refuses the script" in output.splitlines()[-1]


@pytest.mark.parametrize("script", DT.values(), ids=DT)
def test_launch_a_script_of_dynamic_training_without_its_flag_is_told_of_it(script: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(script)
    output = launched(tmp_path, "python", "train.py")
    assert "launch it with --dt-scripts" in output.splitlines()[-1]
    assert output.count("of AWS Dynamic Training with --dt-scripts") == 1, output


def test_launch_a_script_that_never_joins_ends_its_job(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nprint('parsed', sys.argv[1:])\n")
    output = launched(tmp_path, "python", "train.py", "--help")
    assert "no worker joined: the script runs no epochs of ElasticJob.join()" in output.splitlines()[-1]
    assert output.splitlines()[-1].endswith("with exit code 0")


def test_launch_python_is_that_of_dyntrain_whatever_the_shell_has(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    other = tmp_path / "bin" / "python"
    other.write_text("#!/bin/sh\necho another python\nexit 3\n")
    other.chmod(0o755)
    (tmp_path / "train.py").write_text("import sys\nsys.exit(f'by {sys.executable}')\n")
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "HOME": str(tmp_path)}
    launch = [sys.executable, "-m", "dyntrain.training.launch", "-n", "1", "--launcher", "local"]
    done = subprocess.run(
        [*launch, "python train.py --epochs 1"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert f"by {sys.executable}" in done.stderr
    assert "another python" not in done.stdout + done.stderr


def test_launch_what_tells_a_worker_knows_it_by_its_variable() -> None:
    assert numpy_names.WORKER_VARIABLE == CONTROL_FILE_VARIABLE
