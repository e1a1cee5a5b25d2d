"""A kvstore that cannot be elastic ends a launched job at its first start, with what to write, not after many."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import patient

GLUON = "from dyntrain import ElasticJob\nElasticJob.join({store!r})\n"
MODULE = "import dyntrain.training.elastic_mxnet as mx\nmx.kv.create({store!r})\n"


@pytest.mark.jobs
@pytest.mark.parametrize("script", [GLUON, MODULE], ids=["gluon", "module"])
def test_launch_a_store_whose_updates_not_all_workers_make_is_refused_at_once(script: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(script.format(store="dist_async"))
    launch = [sys.executable, "-m", "dyntrain.training.launch", "-n", "1", "--launcher", "local"]
    done = subprocess.run(
        [*launch, sys.executable, "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("dist_sync and dist_device_sync and dist_sync_device") == 1, done.stderr
    assert "the job refuses the script" in done.stderr.splitlines()[-1]
