"""Make a script's random draws in a child equal for a sample in any part, or detect other draws."""

from __future__ import annotations

import functools
import gc
import hashlib
import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.sampling.sharding import Indices
from dyntrain.training.worker.replaced import Replaced

DRAWN = 4096  # numbers drawn to show a generator's state
GENERATOR_TYPES = (random.Random, np.random.Generator, np.random.RandomState)
# The name of each module's parameter for the size: NumPy's gamma has another parameter that is called shape
MODULES = ((mx.nd, "shape"), (mx.nd.random, "shape"), (mx.random, "shape"), (mx.np.random, "size"), (np.random, "size"))
KINDS = (
    "uniform", "normal", "poisson", "exponential", "gamma", "negative_binomial", "generalized_negative_binomial",
    "randint", "multinomial",
)  # fmt: skip
NUMPY_KINDS = ("standard_normal", "binomial", "beta", "laplace", "lognormal", "gumbel", "logistic")
BY_LENGTH = ("rand", "randn", "random", "random_sample")  # functions whose first argument is a length
LIKE_ARRAYS = ("normal_like", "uniform_like")
NAMES = (
    *KINDS,
    *NUMPY_KINDS,
    *BY_LENGTH,
    *LIKE_ARRAYS,
    *(f"{where}_{kind}" for where in ("random", "sample") for kind in KINDS),
)


Rows = tuple[int, int, slice]  # number of samples in this process, number of all samples, slice of this process


def draw_for_all(part: Indices, size: int) -> None:
    """Make later random draws for all `size` samples in this process, and keep the rows of `part`.

    A draw is for the samples if it has as many rows as `part`.
    """
    rows = len(part), size, slice(int(part[0]), int(part[-1]) + 1)
    if len(part) != size:
        draw_for_rows(lambda: rows)


def draw_for_rows(rows: Callable[[], Rows | None]) -> None:
    """Make later random draws for all samples, and keep the rows that `rows` returns at each draw.

    A draw is unchanged if `rows` returns None.
    """
    replaced = Replaced()
    for module, size_name in MODULES:
        for name in NAMES:
            if callable(getattr(module, name, None)):
                cut = functools.partial(
                    _drawing_rows, size_name=size_name, current_rows=rows, takes_length=name in BY_LENGTH
                )
                replaced.replace(module, name, cut)


def _drawing_rows(
    draw: Callable[..., Any], size_name: str, current_rows: Callable[[], Rows | None], takes_length: bool
) -> Callable[..., Any]:
    @functools.wraps(draw)
    def drawn(*args: Any, **options: Any) -> Any:
        sizes = current_rows()
        if sizes is None or sizes[0] == sizes[1]:
            return draw(*args, **options)
        own_count, full_count, rows = sizes
        has_arrays = any(_has_rows(each, own_count, draw) for each in (*args, *options.values()))

        def enlarged(each: Any, is_length: bool) -> Any:
            if _has_rows(each, own_count, draw):
                return each.take(
                    mx.nd.array(np.clip(np.arange(full_count) - rows.start, 0, own_count - 1), ctx=each.ctx)
                )
            if has_arrays:
                return each  # a shape is then for the draw of one sample
            if isinstance(each, tuple) and each[:1] == (own_count,):
                return (full_count, *each[1:])
            return full_count if is_length and each == own_count else each

        larger_args = [enlarged(each, takes_length and not position) for position, each in enumerate(args)]
        larger_options = {name: enlarged(each, name == size_name) for name, each in options.items()}
        is_larger = any(
            a is not b
            for a, b in zip((*args, *options.values()), (*larger_args, *larger_options.values()), strict=True)
        )
        if options.get("out") is not None or not is_larger:
            return draw(*args, **options)
        values = draw(*larger_args, **larger_options)
        return [each[rows] for each in values] if isinstance(values, list) else values[rows]

    return drawn


def _has_rows(value: Any, samples: int, draw: Callable[..., Any]) -> bool:
    """Whether a value is an MXNet array with a row for each sample.

    A `multinomial` draw takes a row of numbers for each sample, so its array must have two axes.
    """
    least_axes = 2 if "multinomial" in draw.__name__ else 1
    return type(value) is mx.nd.NDArray and value.ndim >= least_axes and value.shape[0] == samples


def generators() -> list[Any]:
    """Return the random generators that the script itself has made."""
    return [each for each in gc.get_objects() if issubclass(type(each), GENERATOR_TYPES)]


class Draws:
    """Detector of random draws since the global generators were seeded.

    `own`: the script's own generators, which were not seeded.
    """

    def __init__(self, own: Sequence[Any]) -> None:
        self._own = [(each, _state(each)) for each in own]
        self._random = random.getstate()
        self._singles, replaced = set[str](), Replaced()
        for name in (*KINDS, *NUMPY_KINDS, *BY_LENGTH, "choice"):
            if callable(getattr(np.random, name, None)):
                replaced.replace(np.random, name, functools.partial(self._recording, name=f"np.random.{name}"))
        self._uniform, self._shuffle = mx.nd.random.uniform, mx.nd.shuffle

    def _recording(self, draw: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(draw)
        def drawn(*args: Any, **options: Any) -> Any:
            value = draw(*args, **options)
            if np.ndim(value) == 0:
                self._singles.add(name)
            return value

        return drawn

    @property
    def of_batch(self) -> list[str]:
        """Functions that drew single numbers from generators that each worker seeds differently."""
        moved = ["random"] if random.getstate() != self._random else []
        return sorted([*self._singles, *moved])

    def digest(self) -> str:
        """Return a digest that differs if other numbers were drawn, also by the script's own generators.

        MXNet's two kinds of generators cannot be read, so the digest draws from each kind. Most operators draw from one
        generator for each of many parts of an array; operators like `shuffle` draw from a single generator.
        """
        several, single = self._uniform(shape=DRAWN), self._shuffle(mx.nd.arange(DRAWN))
        moved = sorted(after for each, before in self._own if (after := _state(each)) != before)
        states = [several.asnumpy().tobytes(), single.asnumpy().tobytes(), *moved]
        return hashlib.sha256(b"".join(states)).hexdigest()


def _state(generator: Any) -> bytes:
    if isinstance(generator, np.random.Generator):
        return pickle.dumps(generator.bit_generator.state)
    try:
        return pickle.dumps(generator.getstate() if isinstance(generator, random.Random) else generator.get_state())
    except NotImplementedError:  # SystemRandom, which has no state
        return b""
