"""What a script draws above its loop without a seed, as the frequencies of random features: it would train another net
on each worker, and no digest of weights would show it.
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from job_bed import JobBed

pytestmark = pytest.mark.jobs
DRAWS = """
import sys, random
import numpy as np
from dyntrain import ElasticJob
import mxnet as mx
from mxnet import autograd, gluon
{seed}
print("DRAWN", np.random.randn(), random.random(), mx.nd.random.normal(shape=1).asscalar(), file=sys.stderr)
job = ElasticJob.join()
net = gluon.nn.Dense(1, in_units=3)
net.initialize()
trainer = job.trainer(net.collect_params(), "sgd")
x = mx.nd.ones((24, 3))
for epoch in job.epochs(2, samples=24, global_batch=12):
    for rows in epoch.batches(gluon.data.ArrayDataset(x)):
        with autograd.record():
            loss = net(rows) ** 2
        loss.backward()
        trainer.step(12)
"""


@pytest.mark.parametrize("seed", ["", "np.random.seed(5); random.seed(5)"])
def test_t2_draws_above_the_loop_are_the_same_on_all_workers(tmp_path: Path, seed: str) -> None:
    bed = JobBed(tmp_path, [sys.executable, "-c", DRAWS.format(seed=seed)], workers=2)
    try:
        bed.begin()
        bed.finish()
    finally:
        bed.close()
    drawn = [re.findall("DRAWN (.*)", log.read_text()) for log in tmp_path.glob("worker-*.log")]
    assert len(drawn) == 2
    assert drawn[0] == drawn[1] != []
    of_five = f"{np.random.RandomState(5).randn()} {random.Random(5).random()} "
    assert drawn[0][0].startswith(of_five) == bool(seed), "a seed of the script's own counts"
