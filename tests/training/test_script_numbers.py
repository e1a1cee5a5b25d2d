"""Numbers that a script says: whole ones are taken however they were computed, and all else is refused where it stands,
with its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from dyntrain.training.job import ElasticJob, FixedGlobal, PerWorker
from idioms import data, mlp

NONSENSE = (0, -3, 2.5, "4", True, None, float("nan"), float("inf"), np.float32(1.5), np.array([1, 2]), [4])


def job(**options: Any) -> ElasticJob:
    new_job = ElasticJob.join()
    new_job.trainer(mlp().collect_params(), "sgd", **options)
    return new_job


SAYS: dict[str, Callable[[Any], Any]] = {
    "size": lambda value: ElasticJob.join(size=value),
    "accumulate": lambda value: job(accumulate=value),
    "batch_size": lambda value: job().loader(data(), value),
    "batch": PerWorker,
    "base_workers": lambda value: PerWorker(4, base_workers=value),
    "epochs": lambda value: job().epochs(value, samples=23, global_batch=4),
    "samples": lambda value: job().epochs(1, samples=value, global_batch=4),
    "global_batch": lambda value: job().epochs(1, samples=23, global_batch=value),
    "steps": lambda value: job().epochs(1, samples=23, global_batch=4, steps=value),
    "local_batch_at_most": lambda value: job().epochs(1, samples=23, global_batch=4, local_batch_at_most=value),
}
MAY_BE_LEFT_OUT = ("batch_size", "base_workers", "samples", "global_batch", "steps", "local_batch_at_most")
FROM_ZERO: dict[str, Callable[[Any], Any]] = {
    "ramp": lambda value: PerWorker(4, ramp=value),
    "start": lambda value: job().epochs(9, start=value, samples=23, global_batch=4),
    "seed": lambda value: job().epochs(1, seed=value, samples=23, global_batch=4),
}


@pytest.mark.parametrize("name", [*SAYS, *FROM_ZERO])
def test_a_number_that_is_no_whole_one_is_refused_by_its_name(name: str) -> None:
    for value in NONSENSE:
        if (value is None and name in (*MAY_BE_LEFT_OUT, "ramp")) or (name in FROM_ZERO and value is NONSENSE[0]):
            continue
        with pytest.raises(ValueError, match=f"{name}=.*must be a whole number, at least {int(name in SAYS)}"):
            (SAYS | FROM_ZERO)[name](value)


@pytest.mark.parametrize("name", [*SAYS, *FROM_ZERO])
def test_whole_numbers_are_taken_of_whichever_kind(name: str) -> None:
    """`256 / 4` gives a float, and NumPy's sums numbers of its own."""
    for value in (4, 16 / 4, np.int64(4), np.float64(4.0), np.float32(4.0)):
        (SAYS | FROM_ZERO)[name](value)
    assert (PerWorker(16 / 4), FixedGlobal(np.int32(4))) == (PerWorker(4), FixedGlobal(4))  # type: ignore[arg-type]
    assert isinstance(FixedGlobal(16 / 4).batch, int)  # type: ignore[arg-type]


def test_what_is_said_of_the_wrong_kind_is_refused_with_what_to_say() -> None:
    for store in ("dist_async", "local", 4):
        with pytest.raises(ValueError, match=r"kvstore=.*dist_sync"):
            ElasticJob.join(store)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"batching=6: must be PerWorker\(64\)"):
        job().epochs(1, samples=23, batching=6)  # type: ignore[arg-type]
    epoch = next(iter(job().epochs(1, samples=23, global_batch=4)))
    with pytest.raises(ValueError, match=r"epoch.random\(5\): must be a text"):
        epoch.random(5)  # type: ignore[arg-type]
