"""What works on the laptop works on nodes: a person's script, with folders and files named as ours once were, trains on
a node of the embedded cloud, where dyntrain is installed from its wheel and there is no checkout.
"""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import Deadline
from packaging_environment import ROOT, Environment
from waiting import exit_code

TRAIN = """
import importlib.util, json, sys
from pathlib import Path
from dyntrain import ElasticJob, FixedGlobal  # before anything that imports mxnet, which wants names that NumPy removed
import app, utils
from controller.steering import BATCH
from training.model import network
import dyntrain, mxnet as mx
from mxnet import autograd, gluon

job = ElasticJob.join()
net = network()
net.initialize()
trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": utils.RATE})
data = gluon.data.ArrayDataset(mx.nd.ones((8, 2)), mx.nd.ones((8,)))
for epoch in job.epochs(app.EPOCHS, samples=8, batching=FixedGlobal(BATCH)):
    for x, y in epoch.batches(data):
        with autograd.record():
            loss = gluon.loss.L2Loss()(net(x), y)
        loss.backward()
        trainer.step(BATCH)
found = {"python": sys.executable, "dyntrain": dyntrain.__file__, "path": sys.path}
found["leaked"] = importlib.util.find_spec("leaked") is not None
Path(__file__).with_name("found.part").write_text(json.dumps(found))
Path(__file__).with_name("found.part").rename(Path(__file__).with_name("found.json"))
"""
PROJECT = {
    "train.py": TRAIN,
    "app.py": "EPOCHS = 2\n",
    "utils.py": "RATE = 0.1\n",
    "controller/__init__.py": "",
    "controller/steering.py": "BATCH = 4\n",
    "training/__init__.py": "",
    "training/model.py": "from mxnet import gluon\n\n\ndef network():\n    return gluon.nn.Dense(1, in_units=2)\n",
    "node_bootstrap/__init__.py": "raise SystemExit('a person\\'s own')\n",
}


def put(folder: Path) -> None:
    for name, text in PROJECT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.jobs
def test_a_person_s_own_folders_train_on_a_node_that_has_the_wheel_alone(
    fresh: Callable[..., Environment], tmp_path: Path
) -> None:
    laptop, project, leak, cloud = fresh("local,cpu"), tmp_path / "project", tmp_path / "leak", tmp_path / "cloud"
    put(project)
    leak.mkdir()
    (leak / "leaked.py").touch()
    command = ("local", "up", "--port", "0", "--base-workers", "0", "--directory", cloud, "--", "python", "train.py")
    output = tmp_path / "up.log"
    with output.open("wb") as log:
        up = subprocess.Popen(
            [str(laptop.place / "bin" / "dyntrain"), *map(str, command)],
            env={**laptop.variables, "PYTHONPATH": str(leak), "PYTHONFAULTHANDLER": "1"},
            cwd=project,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = Deadline(60)
        while not (project / "found.json").exists():
            assert up.poll() is None, output.read_text()
            assert not deadline.passed(), logs(cloud)
            time.sleep(0.2)
        result = json.loads((project / "found.json").read_text())
    finally:
        up.send_signal(signal.SIGINT)
        code = exit_code(up, 20, output.read_text)
    assert code == 0
    assert result["leaked"] is False
    assert Path(result["dyntrain"]).is_relative_to(laptop.place)
    assert Path(result["python"]).parent == laptop.place / "bin"
    assert not [place for place in result["path"] if Path(place).is_relative_to(ROOT)]
    console = next(cloud.glob("machines/*/var/log/console.log")).read_text()
    assert f"starting {laptop.python} -m dyntrain.node_bootstrap" in console


def logs(cloud: Path) -> str:
    """The end of whatever the machines wrote, for a person who wonders why the job did not start."""
    files = sorted([*cloud.glob("machines/*/var/log/**/*.log"), *cloud.glob("logs/*.log")])
    return "\n".join(f"{file}:\n{file.read_text(errors='replace')[-2000:]}" for file in files)
