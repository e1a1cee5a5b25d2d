"""The image operators of MXNet that draw, seeded for each sample at the price of two turns of threads.

To seed MXNet's generators takes 1.2 ms, about what it takes to decode a JPEG: nearly all of it for the 1,024 generators
of operators that draw in parallel, which those of images do not use. Each thread has generators of its own, and an
environment variable says how many sets of parallel ones: none is allowed, and an operator that wants one then divides
by zero. So a thread of its own, without any, runs these operators and nothing else. They draw what they would have
drawn on the thread that calls them, seeded alike. Seen in `src/resource.cc` and
`src/operator/image/image_random-inl.h` of MXNet 1.9.1.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.worker.replaced import Replaced
from mxnet import gluon
from mxnet.gluon.data.vision import transforms

COPIES = "MXNET_CPU_PARALLEL_RAND_COPY"
OPERATORS = (
    "random_flip_left_right",
    "random_flip_top_bottom",
    "random_brightness",
    "random_contrast",
    "random_saturation",
    "random_hue",
    "random_color_jitter",
    "random_lighting",
)
DRAW = (
    transforms.RandomFlipLeftRight,
    transforms.RandomFlipTopBottom,
    transforms.RandomBrightness,
    transforms.RandomContrast,
    transforms.RandomSaturation,
    transforms.RandomHue,
    transforms.RandomColorJitter,
    transforms.RandomLighting,
)


class ImageDraws:
    """Of a loading process, in which they are made once, after the fork. `numpy_modes`: of shapes and of arrays."""

    def __init__(self, numpy_modes: tuple[bool, bool]) -> None:
        self._thread, self._seed = ThreadPoolExecutor(1), 0
        self._fresh = self._on = False
        with _no_parallel_generators():
            self._thread.submit(self._begin, numpy_modes).result()
        replaced = Replaced()
        for module in (mx.nd.image, mx.nd.numpy_extension.image, mx.npx.image):
            for name in OPERATORS:
                replaced.replace(module, name, self._on_the_thread)
        replaced.replace(gluon.HybridBlock, "_call_cached_op", self._one_by_one)

    def seed(self, number: int) -> None:
        """What the operators draw from now on follows from the number, as after `mx.random.seed(number)`."""
        self._seed, self._fresh, self._on = number, True, True

    def stop(self) -> None:
        """From now on they draw where they are called."""
        self._on = False

    @staticmethod
    def _begin(numpy_modes: tuple[bool, bool]) -> None:
        mx.util.set_np(*numpy_modes)
        mx.random.seed(0)  # makes the generators of this thread

    def _on_the_thread(self, operator: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            if self._fresh:
                mx.random.seed(self._seed)
                self._fresh = False
            return operator(*args, **options)

        @functools.wraps(operator)
        def draws(*args: Any, **options: Any) -> Any:
            return self._thread.submit(run, *args, **options).result() if self._on else operator(*args, **options)

        return draws

    def _one_by_one(self, cached: Callable[..., Any]) -> Callable[..., Any]:
        """`transforms.Compose` makes one operator of several, on which no thread can be chosen for each."""

        @functools.wraps(cached)
        def calls(block: Any, *args: Any) -> Any:
            if not self._on or not _has_draws(block):
                return cached(block, *args)
            active, block._active = block._active, False
            try:
                return block.forward(*args)
            finally:
                block._active = active

        return calls


def _has_draws(block: Any) -> bool:
    return isinstance(block, DRAW) or any(map(_has_draws, block._children.values()))


@contextmanager
def _no_parallel_generators() -> Iterator[None]:
    before = os.environ.get(COPIES)
    os.environ[COPIES] = "0"
    try:
        yield
    finally:
        del os.environ[COPIES]
        if before is not None:
            os.environ[COPIES] = before
