"""Whatever form a script's import of MXNet has, it is given the elastic names; and nothing else is changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training.dt_scripts import PATH_VARIABLE, environment

FORMS = """
import mxnet as mx
from mxnet import gluon, kv, mod
from mxnet.callback import do_checkpoint
from mxnet.module import BaseDataIterator, BucketingModule, Module
from dyntrain.training import elastic_mxnet, module
from dyntrain.training.worker.state import saved_model
assert mx.mod.Module is mod.Module is Module is module.Module is elastic_mxnet.mod.Module
assert mx.mod.BaseDataIterator is BaseDataIterator is module.BaseDataIterator
assert mx.kvstore.create is kv.create is module.create
assert mx.callback.do_checkpoint is do_checkpoint is saved_model.do_checkpoint
assert mx.model.save_checkpoint is saved_model.save_checkpoint
assert mx.callback.Speedometer.__module__ == "mxnet.callback"
assert BucketingModule.__module__ == "mxnet.module.bucketing_module"
assert mx.kv.create("local").type == "local"
for name in ("dist_sync", "dist_device_sync", "dist_sync_device", "Dist_Sync_Device"):
    store = mx.kvstore.create(name)
    assert (store.type, store.rank, store.num_workers) == (name.lower(), 0, 1)
net = gluon.nn.Dense(1, in_units=1)
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_sync")
try:
    trainer.step(1)
except NotImplementedError as error:
    assert "job.trainer" in str(error)
else:
    raise AssertionError("a Trainer on Module's kvstore would train alone")
"""


def _run(source: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """In a training process of a machine that has a sitecustomize of its own."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.own = True\n")
    given = environment({**os.environ, PATH_VARIABLE: str(tmp_path)}, {})
    argv = [sys.executable, "-c", source]
    return subprocess.run(argv, env=given, capture_output=True, text=True, timeout=patient(60), check=False)


@pytest.mark.parametrize("first", ["", "from dyntrain import ElasticJob\n"])
def test_face_every_form_of_the_import_finds_the_elastic_names(first: str, tmp_path: Path) -> None:
    done = _run(first + FORMS, tmp_path)
    assert done.returncode == 0, done.stderr


def test_face_a_python_that_does_not_import_mxnet_is_left_alone(tmp_path: Path) -> None:
    source = "import sys; print(sys.own, [name for name in sys.modules if name.startswith(('mxnet', 'numpy'))])"
    assert _run(source, tmp_path).stdout == "True []\n"


def test_face_what_a_training_process_has_besides_is_kept() -> None:
    site = environment({}, {})[PATH_VARIABLE]
    assert environment({"A": "1"}, {PATH_VARIABLE: "/outer"}) == {"A": "1", PATH_VARIABLE: f"{site}{os.pathsep}/outer"}
    assert environment({PATH_VARIABLE: "/own"}, {PATH_VARIABLE: "/outer"}) == {PATH_VARIABLE: f"{site}{os.pathsep}/own"}
