"""Random numbers that do not depend on restarts: at each boundary the generators are seeded from the job's position.

MXNet's generators can be seeded but not read, so no commit can hold their state. A commit does not need the generators'
state: after a boundary, draws depend on (seed, step, worker's number) alone. So a job that continues from a commit
draws the same numbers as without the interruption.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip

from dyntrain.training.trial_files import trial_order


def seed_generators(seed: int, step: int, number: int, part: int = 0) -> None:
    """Seed MXNet's, NumPy's global and Python's `random` generators: dropout and augmentation use all three."""
    seed_words = np.random.SeedSequence([seed, step, number, part]).generate_state(3)
    mxnet_seed, numpy_seed, python_seed = (int(seed_word) for seed_word in seed_words)
    mx.random.seed(mxnet_seed & 0x7FFFFFFF)
    np.random.seed(numpy_seed)
    random.seed(python_seed)


def draws_as(number: int) -> int:
    """Return the number that seeds this worker's draws: its own, or under `dyntrain check` the same for all."""
    trial = trial_order()
    return number if trial is None else int(trial.other_draws)


def seed_alike() -> None:
    """Seed NumPy and Python equally in every process, so that draws before the loop are the same on all workers.

    Such draws are, for example, random features. NumPy's and Python's initial seeds differ between processes, but not
    the initial seed of MXNet. A script's own seed overrides this seed.
    """
    np.random.seed(0)
    random.seed(0)


def shared_generator(seed: int, epoch: int, step: int | None, name: str) -> np.random.Generator:
    """Return a generator that is the same on all workers, for a step, or for a whole epoch if `step` is None."""
    scope_words = [0, epoch] if step is None else [1, step]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *scope_words, zlib.crc32(name.encode())])))


def drawn_for(
    seed: int, epoch: int, samples: Iterable[int], name: str, draw: Callable[[np.random.Generator], Any]
) -> Any:
    """Call `draw` for each sample and stack the results.

    A sample's result is the same on any worker and in any batch.
    """
    seed_words = [seed, 2, epoch, zlib.crc32(name.encode())]
    return np.stack(
        [
            draw(np.random.Generator(np.random.PCG64(np.random.SeedSequence([*seed_words, int(sample)]))))
            for sample in samples
        ]
    )
