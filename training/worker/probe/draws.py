"""In a child process, give a sample the same random draws in any part of a batch, or detect draws that differ."""

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

DRAWN_NUMBERS = 4096  # numbers drawn to compare the state of generators
GENERATOR_TYPES = (random.Random, np.random.Generator, np.random.RandomState)
# The name of each module's parameter for the size: NumPy's gamma has another parameter that is called shape
MODULES = ((mx.nd, "shape"), (mx.nd.random, "shape"), (mx.random, "shape"), (mx.np.random, "size"), (np.random, "size"))
DISTRIBUTIONS = (
    "uniform", "normal", "poisson", "exponential", "gamma", "negative_binomial", "generalized_negative_binomial",
    "randint", "multinomial",
)  # fmt: skip
NUMPY_DISTRIBUTIONS = ("standard_normal", "binomial", "beta", "laplace", "lognormal", "gumbel", "logistic")
BY_LENGTH = ("rand", "randn", "random", "random_sample")  # functions whose first argument is a length
LIKE_ARRAYS = ("normal_like", "uniform_like")  # functions that draw an array with the shape of their argument
DRAW_FUNCTION_NAMES = (
    *DISTRIBUTIONS,
    *NUMPY_DISTRIBUTIONS,
    *BY_LENGTH,
    *LIKE_ARRAYS,
    *(f"{prefix}_{distribution}" for prefix in ("random", "sample") for distribution in DISTRIBUTIONS),
)


Rows = tuple[int, int, slice]  # number of samples in this process, number of all samples, slice of this process


def draw_for_all_samples(part: Indices, size: int) -> None:
    """From now on in this process, make each random draw for all `size` samples, and return the drawn rows of `part`.

    A random draw is assumed to be for samples if the number of its rows is the number of samples in `part`.
    """
    process_rows = len(part), size, slice(int(part[0]), int(part[-1]) + 1)
    if len(part) != size:
        draw_for_rows(lambda: process_rows)


def draw_for_rows(current_rows: Callable[[], Rows | None]) -> None:
    """From now on, make each random draw for all samples of a batch, and return the drawn rows that `current_rows`
    names.

    `current_rows` is called at each draw; if it returns None, the draw stays unchanged.
    """
    replacements = Replaced()
    for module, size_name in MODULES:
        for name in DRAW_FUNCTION_NAMES:
            if callable(getattr(module, name, None)):
                row_draw = functools.partial(
                    _make_row_draw, size_name=size_name, current_rows=current_rows, takes_length=name in BY_LENGTH
                )
                replacements.replace(module, name, row_draw)


def _make_row_draw(
    draw: Callable[..., Any], size_name: str, current_rows: Callable[[], Rows | None], takes_length: bool
) -> Callable[..., Any]:
    @functools.wraps(draw)
    def draw_rows(*args: Any, **options: Any) -> Any:
        process_rows = current_rows()
        if process_rows is None or process_rows[0] == process_rows[1]:
            return draw(*args, **options)
        own_samples, all_samples, rows = process_rows
        has_row_arrays = any(_has_rows(argument, own_samples, draw) for argument in (*args, *options.values()))

        def enlarge(argument: Any, is_length: bool) -> Any:
            if _has_rows(argument, own_samples, draw):
                return argument.take(
                    mx.nd.array(np.clip(np.arange(all_samples) - rows.start, 0, own_samples - 1), ctx=argument.ctx)
                )
            if has_row_arrays:
                return argument  # a shape is then for the draw of one sample
            if isinstance(argument, tuple) and argument[:1] == (own_samples,):
                return (all_samples, *argument[1:])
            return all_samples if is_length and argument == own_samples else argument

        larger_args = [enlarge(argument, takes_length and not position) for position, argument in enumerate(args)]
        larger_options = {name: enlarge(argument, name == size_name) for name, argument in options.items()}
        has_larger_argument = any(
            old is not new
            for old, new in zip((*args, *options.values()), (*larger_args, *larger_options.values()), strict=True)
        )
        if options.get("out") is not None or not has_larger_argument:
            return draw(*args, **options)
        drawn_values = draw(*larger_args, **larger_options)
        return [values[rows] for values in drawn_values] if isinstance(drawn_values, list) else drawn_values[rows]

    return draw_rows


def _has_rows(value: Any, samples: int, draw: Callable[..., Any]) -> bool:
    """Whether a draw's argument is an MXNet array with a row for each sample.

    A `multinomial` draw takes a row of probabilities for each sample, so its array must have at least two axes.
    """
    fewest_axes = 2 if "multinomial" in draw.__name__ else 1
    return type(value) is mx.nd.NDArray and value.ndim >= fewest_axes and value.shape[0] == samples


def find_generators() -> list[Any]:
    """Return all generator objects of `random` and NumPy that the script itself has made in this process."""
    return [tracked_object for tracked_object in gc.get_objects() if issubclass(type(tracked_object), GENERATOR_TYPES)]


class DrawCheck:
    """Check of the random draws that a process made since the global random generators were seeded.

    `own`: the script's own generators, which were not seeded.
    """

    def __init__(self, own: Sequence[Any]) -> None:
        self._own = [(generator, _generator_state(generator)) for generator in own]
        self._random = random.getstate()
        self._singles, replacements = set[str](), Replaced()
        for name in (*DISTRIBUTIONS, *NUMPY_DISTRIBUTIONS, *BY_LENGTH, "choice"):
            if callable(getattr(np.random, name, None)):
                replacements.replace(np.random, name, functools.partial(self._recording_draw, name=f"np.random.{name}"))
        self._uniform, self._shuffle = mx.nd.random.uniform, mx.nd.shuffle

    def _recording_draw(self, draw: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(draw)
        def draw_and_record(*args: Any, **options: Any) -> Any:
            value = draw(*args, **options)
            if np.ndim(value) == 0:
                self._singles.add(name)
            return value

        return draw_and_record

    @property
    def single_number_draws(self) -> list[str]:
        """Names of functions by which the script drew single numbers from generators that each worker seeds
        differently.
        """
        changed_generators = ["random"] if random.getstate() != self._random else []
        return sorted([*self._singles, *changed_generators])

    def digest(self) -> str:
        """Return a digest that differs between two processes if they drew unequally, also from the script's own
        generators.

        The state of MXNet's two kinds of generators cannot be read, so this method draws numbers from each kind. Most
        MXNet operators draw each part of an array from a generator of its own. Operators like `shuffle` draw from a
        single generator.
        """
        parallel_draw, single_draw = self._uniform(shape=DRAWN_NUMBERS), self._shuffle(mx.nd.arange(DRAWN_NUMBERS))
        changed_states = sorted(
            state_after
            for generator, state_before in self._own
            if (state_after := _generator_state(generator)) != state_before
        )
        states = [parallel_draw.asnumpy().tobytes(), single_draw.asnumpy().tobytes(), *changed_states]
        return hashlib.sha256(b"".join(states)).hexdigest()


def _generator_state(generator: Any) -> bytes:
    if isinstance(generator, np.random.Generator):
        return pickle.dumps(generator.bit_generator.state)
    try:
        return pickle.dumps(generator.getstate() if isinstance(generator, random.Random) else generator.get_state())
    except NotImplementedError:  # SystemRandom, which has no state
        return b""
