"""MXNet's random image operators, seeded for each sample at the cost of two thread switches.

Seeding MXNet's generators takes 1.2 ms, about as long as decoding a JPEG. Nearly all of that time is for the 1,024
generators of parallel operators, which image operators do not use. Each thread has its own generators, and an
environment variable sets the number of its parallel ones. With zero, an operator that needs a parallel generator
divides by zero. So a thread without parallel generators runs the image operators and nothing else. With the same seed,
its draws are those of the calling thread. Sources: `src/resource.cc` and `src/operator/image/image_random-inl.h` of
MXNet 1.9.1.
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
    """Runs a loading process's random image operators on a thread of their own. Create one instance, after the fork.

    `numpy_modes` says whether MXNet has NumPy's semantics for shapes, and for arrays.
    """

    def __init__(self, numpy_modes: tuple[bool, bool]) -> None:
        self._thread, self._seed = ThreadPoolExecutor(1), 0
        self._seed_pending = self._enabled = False
        with _without_parallel_generators():
            self._thread.submit(self._start_thread, numpy_modes).result()
        replaced = Replaced()
        for module in (mx.nd.image, mx.nd.numpy_extension.image, mx.npx.image):
            for name in OPERATORS:
                replaced.replace(module, name, self._on_the_thread)
        replaced.replace(gluon.HybridBlock, "_call_cached_op", self._unfused)

    def seed(self, number: int) -> None:
        """Seed the operators' draws from now on, as `mx.random.seed(number)` would."""
        self._seed, self._seed_pending, self._enabled = number, True, True

    def stop(self) -> None:
        """Run the operators on the calling thread from now on."""
        self._enabled = False

    @staticmethod
    def _start_thread(numpy_modes: tuple[bool, bool]) -> None:
        mx.util.set_np(*numpy_modes)
        mx.random.seed(0)  # creates this thread's generators

    def _on_the_thread(self, operator: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            if self._seed_pending:
                mx.random.seed(self._seed)
                self._seed_pending = False
            return operator(*args, **options)

        @functools.wraps(operator)
        def draws(*args: Any, **options: Any) -> Any:
            return self._thread.submit(run, *args, **options).result() if self._enabled else operator(*args, **options)

        return draws

    def _unfused(self, cached: Callable[..., Any]) -> Callable[..., Any]:
        """Run a block's children one by one: `transforms.Compose` would fuse the children into one operator."""

        @functools.wraps(cached)
        def calls(block: Any, *args: Any) -> Any:
            if not self._enabled or not _has_draws(block):
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
def _without_parallel_generators() -> Iterator[None]:
    before = os.environ.get(COPIES)
    os.environ[COPIES] = "0"
    try:
        yield
    finally:
        del os.environ[COPIES]
        if before is not None:
            os.environ[COPIES] = before
