"""Datasets whose random augmentation depends only on the sample and the epoch.

Augmentation draws from the random generators of Python, NumPy and MXNet, which are seeded from (seed, epoch, index)
before each sample is loaded. So an augmented sample is the same on any worker and in any process, and is the same when
it is loaded again.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.worker.data.image_draws import ImageDraws

Key = tuple[int, int, int]  # seed, epoch, index
CHECKS_AHEAD = 64  # batches whose test numbers are computed in advance
_PIXEL_SHAPE = (1, 1, 1)  # of the image for a test number
_BATCH_OFFSET = 1 << 62  # above every sample's index


class SampleError(RuntimeError):
    """A sample of a dataset could not be loaded. The message names the sample and the reason."""


class SeededDataset:
    """The samples of `dataset` by key (seed, epoch, index).

    All random generators are seeded before a sample is loaded.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, key: Key) -> Any:
        seed_words = _seed_words(key)
        mx.random.seed(seed_words[2])
        return self._load_sample(key, seed_words)

    def seed(self, key: Key) -> None:
        """Seed the random generators of Python, NumPy and MXNet from `key`."""
        seed_words = _seed_words(key)
        mx.random.seed(seed_words[2])
        random.seed(seed_words[0])
        np.random.seed(seed_words[1])

    def _load_sample(self, key: Key, seed_words: tuple[int, int, int]) -> Any:
        random.seed(seed_words[0])
        np.random.seed(seed_words[1])
        try:
            return self._dataset[key[2]]
        except Exception as error:
            raise SampleError(f"sample {key[2]} of the dataset: {type(error).__name__}: {error}") from error


class WatchedDataset(SeededDataset):
    """A SeededDataset that seeds MXNet's generators only if a transform draws from these generators.

    Seeding MXNet's generators takes 1.2 ms a sample, about as long as decoding a JPEG. Few transforms draw from MXNet's
    generators except the image operators, which `ImageDraws` seeds. So MXNet's generators are seeded only after a
    transform has drawn from these generators once. After each batch, a test draw shows whether a transform has drawn
    from MXNet's generators. The first batch for which a transform has drawn from MXNet's generators is loaded again.
    Use the class only in a process where nothing else draws from MXNet's generators.
    """

    def __init__(self, dataset: Any, checks_ahead: int = CHECKS_AHEAD) -> None:
        super().__init__(dataset)
        self._has_drawn, self._checks_ahead = False, checks_ahead
        self._expected: list[tuple[float, float]] = []
        self._images: ImageDraws | None = None

    def set_image_draws(self, images: ImageDraws) -> None:
        self._images = images

    def __getitem__(self, key: Key) -> Any:
        if self._has_drawn:
            return super().__getitem__(key)
        if not self._expected:
            self._compute_test_numbers()
        seed_words = _seed_words(key)
        if self._images is not None:
            self._images.seed(seed_words[2])
        return self._load_sample(key, seed_words)

    def reload_if_drawn(self, keys: Sequence[Key], samples: list[Any]) -> list[Any]:
        """Return the samples of a batch.

        If a transform has drawn from MXNet's unseeded generators, the samples are loaded again.
        """
        if self._images is not None:
            self._images.stop()
        if self._has_drawn or _draw_test_numbers() == self._expected.pop():
            return samples
        self._has_drawn = True
        return [self[key] for key in keys]

    def seed(self, key: Key) -> None:
        super().seed(key)
        self._expected.clear()

    def _compute_test_numbers(self) -> None:
        mx.random.seed(0)
        self._expected = [_draw_test_numbers() for _ in range(self._checks_ahead)][::-1]
        mx.random.seed(0)


def key_of_batch(keys: Sequence[Key]) -> Key:
    """Return the key that seeds the random numbers drawn for a batch as a whole."""
    seed, epoch, index = keys[0]
    return seed, epoch, _BATCH_OFFSET + index


def _draw_test_numbers() -> tuple[float, float]:
    """Draw a number from each of MXNet's two kinds of generators.

    The numbers differ from the expected numbers if other code has drawn from MXNet's generators.
    """
    image_draw = mx.nd.image.random_brightness(mx.nd.ones(_PIXEL_SHAPE), 0.0, 1.0)
    return image_draw.asnumpy().item(), mx.nd.random.uniform(shape=1).asnumpy().item()


def _seed_words(key: Key) -> tuple[int, int, int]:
    python_seed, numpy_seed, mxnet_seed = struct.unpack(
        "<III", hashlib.blake2b(struct.pack("<QQQ", *key), digest_size=12).digest()
    )
    return python_seed, numpy_seed, mxnet_seed & 0x7FFFFFFF
