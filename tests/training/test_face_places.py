"""Where a process stands among all, as scripts of one process a GPU ask for it: which GPU is its own must be known
before its net is made, and two processes of a node must not take each other's ledger.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from coordinated_bed import HERE, Worker, form, go_on, worker_in
from dyntrain.training.job import ElasticJob
from dyntrain.training.protocol.messages import START, Go


@pytest.fixture
def worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """The second of three workers of its node."""
    with worker_in(tmp_path, monkeypatch, slot=1, slots=3) as worker:
        yield worker


def test_the_place_on_the_node_is_known_before_the_loop_and_the_one_among_all_in_it(worker: Worker) -> None:
    job = ElasticJob(worker.membership)
    assert (job.local_rank, job.local_size) == (1, 3)
    for name in ("rank", "cross_rank"):
        with pytest.raises(RuntimeError, match=rf"job\.{name} is unknown before the loop .* use job\.local_rank"):
            getattr(job, name)

    worker.enter(form(2, START, number=4, workers=6, cross_rank=1), Go(generation=2), go_on(START))

    assert (job.rank, job.cross_rank, job.local_rank, job.local_size) == (4, 1, 1, 3)


def test_each_process_of_a_node_says_which_it_is_and_keeps_a_ledger_of_its_own(worker: Worker, tmp_path: Path) -> None:
    worker.enter(form(2, START), Go(generation=2), go_on(START))
    assert worker.line.hello is not None
    assert (worker.line.hello.instance_id, worker.line.hello.name) == (HERE, f"{HERE}:1")
    worker.membership.intend(START, np.arange(2))
    (ledger,) = [path.name for path in tmp_path.rglob("*") if path.is_file() and f"{HERE}:1" in path.name]
    assert "-" in ledger


def test_a_script_that_trains_alone_stands_where_one_worker_of_one_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DYNTRAIN_CONTROL_FILE", raising=False)
    job = ElasticJob.join()
    assert (job.rank, job.local_rank, job.local_size, job.cross_rank) == (0, 0, 1, 0)
