"""Seeds MXNet's random image operators for each sample, at the cost of two thread switches.

Seeding MXNet's generators takes 1.2 ms, about as long as decoding a JPEG. Nearly all of the seeding time is for the
1,024 generators of parallel operators, which image operators do not use. Each thread has its own generators, and an
environment variable sets the number of parallel generators in a thread. If a thread has zero parallel generators, an
operator that needs a parallel generator divides by zero. So this module runs the image operators, and no other
operators, on a thread without parallel generators. The image operators draw the same numbers from the same seed on a
thread that has parallel generators and on a thread that has none. In MXNet 1.9.1, the source of the generators is
`src/resource.cc`, and that of the image operators is `src/operator/image/image_random-inl.h`.
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

GENERATORS_VARIABLE = "MXNET_CPU_PARALLEL_RAND_COPY"
RANDOM_OPERATORS = (
    "random_flip_left_right",
    "random_flip_top_bottom",
    "random_brightness",
    "random_contrast",
    "random_saturation",
    "random_hue",
    "random_color_jitter",
    "random_lighting",
)
RANDOM_BLOCKS = (
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
    """In a process that loads batches, runs the random image operators on a separate thread.

    Create one instance in each process that loads batches, after the fork.

    `numpy_modes` says whether MXNet uses NumPy's semantics for shapes, and whether for arrays.
    """

    def __init__(self, numpy_modes: tuple[bool, bool]) -> None:
        self._thread, self._seed = ThreadPoolExecutor(1), 0
        self._seed_pending = self._enabled = False
        with _without_parallel_generators():
            self._thread.submit(self._start_thread, numpy_modes).result()
        replacements = Replaced()
        for operator_module in (mx.nd.image, mx.nd.numpy_extension.image, mx.npx.image):
            for operator_name in RANDOM_OPERATORS:
                replacements.replace(operator_module, operator_name, self._runner_on_thread)
        replacements.replace(gluon.HybridBlock, "_call_cached_op", self._unfused_call)

    def seed(self, number: int) -> None:
        """Seed the random numbers of the image operators, with the same effect as `mx.random.seed(number)`."""
        self._seed, self._seed_pending, self._enabled = number, True, True

    def stop(self) -> None:
        """Run the image operators on the calling thread from now on."""
        self._enabled = False

    @staticmethod
    def _start_thread(numpy_modes: tuple[bool, bool]) -> None:
        mx.util.set_np(*numpy_modes)
        mx.random.seed(0)  # creates this thread's generators

    def _runner_on_thread(self, operator: Callable[..., Any]) -> Callable[..., Any]:
        def run_on_thread(*args: Any, **options: Any) -> Any:
            if self._seed_pending:
                mx.random.seed(self._seed)
                self._seed_pending = False
            return operator(*args, **options)

        @functools.wraps(operator)
        def draw_if_random(*args: Any, **options: Any) -> Any:
            return (
                self._thread.submit(run_on_thread, *args, **options).result()
                if self._enabled
                else operator(*args, **options)
            )

        return draw_if_random

    def _unfused_call(self, call_cached: Callable[..., Any]) -> Callable[..., Any]:
        """Call a block's children one by one, not as the one operator into which `transforms.Compose` fuses them."""

        @functools.wraps(call_cached)
        def call_children(block: Any, *args: Any) -> Any:
            if not self._enabled or not _has_random_block(block):
                return call_cached(block, *args)
            was_active, block._active = block._active, False
            try:
                return block.forward(*args)
            finally:
                block._active = was_active

        return call_children


def _has_random_block(block: Any) -> bool:
    return isinstance(block, RANDOM_BLOCKS) or any(map(_has_random_block, block._children.values()))


@contextmanager
def _without_parallel_generators() -> Iterator[None]:
    earlier_value = os.environ.get(GENERATORS_VARIABLE)
    os.environ[GENERATORS_VARIABLE] = "0"
    try:
        yield
    finally:
        del os.environ[GENERATORS_VARIABLE]
        if earlier_value is not None:
            os.environ[GENERATORS_VARIABLE] = earlier_value
