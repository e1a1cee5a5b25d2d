"""Random numbers that do not depend on who was restarted: at each boundary the generators are seeded from where the job
is.

MXNet's generators can be seeded but not read, so no commit can hold their state. It need not: after a boundary they
depend on (seed, step, worker's number) alone, and a job that goes on from a commit draws what it would have drawn
without the interruption.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip

from dyntrain.training.trial_files import order


def seed_generators(seed: int, step: int, number: int, part: int = 0) -> None:
    """Those of MXNet, of NumPy's global functions and of Python's `random`: dropout and augmentation use all three."""
    words = np.random.SeedSequence([seed, step, number, part]).generate_state(3)
    first, second, third = (int(word) for word in words)
    mx.random.seed(first & 0x7FFFFFFF)
    np.random.seed(second)
    random.seed(third)


def draws_as(number: int) -> int:
    """The number of the worker whose draws this one makes for a batch: its own, but in `dyntrain check`, where all draw
    alike.
    """
    trial = order()
    return number if trial is None else int(trial.other_draws)


def begin_alike() -> None:
    """What a script draws above its loop, as random features, is then the same on all workers, and on those that join.
    NumPy and Python begin with other numbers in each process; MXNet does not. A seed of the script's own comes later.
    """
    np.random.seed(0)
    random.seed(0)


def shared_generator(seed: int, epoch: int, step: int | None, name: str) -> np.random.Generator:
    """The same wherever it is made. `step` None: for all of the epoch."""
    where = [0, epoch] if step is None else [1, step]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *where, zlib.crc32(name.encode())])))


def drawn_for(
    seed: int, epoch: int, samples: Iterable[int], name: str, draw: Callable[[np.random.Generator], Any]
) -> Any:
    """What `draw` makes for each of the samples, stacked: a sample's is the same wherever and with whomever it is."""
    words = [seed, 2, epoch, zlib.crc32(name.encode())]
    return np.stack(
        [draw(np.random.Generator(np.random.PCG64(np.random.SeedSequence([*words, int(i)])))) for i in samples]
    )
