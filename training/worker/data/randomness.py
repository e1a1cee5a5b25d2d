"""Seeds generators from the job's position where workers may join or leave, so restarts change no random numbers.

MXNet's random generators can be seeded but not read, so a commit cannot contain their state. A commit does not need the
generators' state: after each boundary (a point between two steps where workers may join or leave), random numbers
depend only on (seed, step, worker's number). So a job that continues from a commit draws the same numbers as without
the interruption.
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
    """Seed the global random generators of MXNet, NumPy and Python, which dropout and augmentation use."""
    seed_words = np.random.SeedSequence([seed, step, number, part]).generate_state(3)
    mxnet_seed, numpy_seed, python_seed = (int(seed_word) for seed_word in seed_words)
    mx.random.seed(mxnet_seed & 0x7FFFFFFF)
    np.random.seed(numpy_seed)
    random.seed(python_seed)


def number_for_seed(number: int) -> int:
    """Return the number that seeds this worker's random generators.

    Under `dyntrain check` all workers have the same number, otherwise each worker has its own number.
    """
    trial = trial_order()
    return number if trial is None else int(trial.other_draws)


def seed_alike() -> None:
    """Seed NumPy and Python equally on all workers, for random numbers that the script draws before its loop.

    Without this function, NumPy's and Python's generators would start with different seeds in each process. MXNet's
    generators start with the same seed in each process. If the script seeds a generator itself, the script's seed is
    used.
    """
    np.random.seed(0)
    random.seed(0)


def shared_generator(seed: int, epoch: int, step: int | None, name: str) -> np.random.Generator:
    """Return a random generator for a step, or if `step` is None for an epoch.

    The generator draws the same numbers on all workers.
    """
    scope_words = [0, epoch] if step is None else [1, step]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *scope_words, zlib.crc32(name.encode())])))


def draw_per_sample(
    seed: int, epoch: int, samples: Iterable[int], name: str, draw: Callable[[np.random.Generator], Any]
) -> Any:
    """Call `draw` for each sample with the sample's own random generator, and stack the results.

    The result for a sample is the same on any worker and in any batch.
    """
    seed_words = [seed, 2, epoch, zlib.crc32(name.encode())]
    return np.stack(
        [
            draw(np.random.Generator(np.random.PCG64(np.random.SeedSequence([*seed_words, int(sample)]))))
            for sample in samples
        ]
    )
