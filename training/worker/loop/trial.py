"""A worker's part in an experiment of `dyntrain check`; a worker outside of such an experiment does not use this
module.

In an experiment, a worker saves its weights after each final step and ends its loops early. At the steps that the
experiment plans, a worker waits or kills itself.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip

from dyntrain.training.sampling.batching import PerWorker
from dyntrain.training.trial_files import SUFFIX, Moment, Order, SavedStep, trial_order
from dyntrain.training.worker.data.randomness import number_for_seed, seed_generators
from dyntrain.training.worker.loop.held import describe_arrays
from dyntrain.training.worker.loop.loop_config import LoopConfig
from dyntrain.training.worker.probe.draws import DRAWN_NUMBERS, Rows, draw_for_rows
from dyntrain.training.worker.probe.freeze_layers import Moments, Statistics, freeze_layers
from dyntrain.training.worker.replaced import Replaced
from mxnet import gluon

DEFAULT_BATCHES = 4  # whole batches of an epoch, by default
MOST_KEPT_NUMBERS = 4096  # larger arrays become as many signed sums, whose differences are as large as the arrays'
SIGN_SEED = 1  # seed of the signs, the same in every process
GATE_SECONDS = 0.02  # seconds between two checks for the file that ends a wait
LARGE_CHANGE = 0.5  # added to weights on which nothing may depend


class FirstBatch(Statistics):
    """Mean and variance of each normalization layer (norm) in its first batch, used as constants in later batches."""

    def __init__(self, known: list[Moments]) -> None:
        super().__init__(None)
        self.known = known
        self._norms: dict[
            int, tuple[int, Any]
        ] = {}  # by ids of the running means, held so that no other array gets the id

    def next_moments(self, data: Any, axis: int, like: Any) -> list[Any]:
        norm_number, _ = self._norms.setdefault(id(like), (len(self._norms), like))
        if norm_number < len(self.known):
            make_array = mx.np.array if isinstance(data, mx.np.ndarray) else mx.nd.array
            return [make_array(values, dtype=like.dtype, ctx=data.ctx) for values in self.known[norm_number]]
        new_moments = super().next_moments(data, axis, like)
        self.known.append(self.seen[-1])
        return new_moments


class Trial:
    """What one worker process does and records in an experiment of `dyntrain check`."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._loops = 0
        self._loop: Any = None  # the present loop, or the last one
        self._gradients: dict[str, Any] = {}
        self._variable_arrays: dict[str, Any] = {}  # the script's variables at the step's begin
        self._has_stepped = False  # whether a step of this loop was begun
        self._rows: Rows | None = None  # of the current batch
        self._seeded_alike = False  # whether generators are seeded for the batch, and not by the script since
        self._norms = FirstBatch(json.loads(order.norms.read_text()) if order.norms else [])

    def shortened(self, config: LoopConfig) -> LoopConfig:
        """Return the loop's settings with the experiment's limits of samples, epochs and steps."""
        order, batch = self._order, config.largest_batch
        if isinstance(config.batching, PerWorker):
            order.varying_batch_file.touch()
        max_samples = (
            DEFAULT_BATCHES * batch + (config.samples % batch or batch) if order.samples is None else order.samples
        )
        if config.drawn is None and max_samples < config.samples:
            config = replace(config, samples=max_samples, drawn_from=config.drawn_from or config.samples)
        epochs = config.epochs if order.epochs is None else min(config.epochs, order.epochs)
        steps = min(config.steps or order.steps, order.steps)
        # a probe of the first batch must not end a run whose weights are compared
        return replace(config, epochs=epochs, steps=steps, probe=config.probe and order.rules)

    def begin_loop(self, loop: Any) -> None:
        """Record the initial weights of a loop; before the process's first loop, also freeze layers and replace MXNet
        functions.

        Initial weights are recorded only if this worker begins at the loop's first step.
        """
        if not self._loops:
            _freeze_all(self._norms)
            draw_for_rows(lambda: self._rows)
            self._record_script()
        self._loops, self._loop, self._has_stepped = self._loops + 1, loop, False
        if loop.membership.over or loop.position.step != loop.starts.step:
            return
        self._record_arrays(loop)
        if self._order.nudge and self._loops == 1:
            random_generator = np.random.default_rng(self._order.seed)
            for param in loop.state.equal:
                _nudge(param, random_generator)

    def begin_step(self, loop: Any, rows: Any, size: int) -> None:
        """Seed the generators for a batch of `size` samples over all workers, of which `rows` are this worker's.

        A random draw for the batch is made for all samples on each worker, so all workers draw the same numbers.
        """
        self._rows = len(rows), size, slice(int(rows[0]), int(rows[-1]) + 1)
        self._has_stepped = True
        if not self._order.rules:
            self._variable_arrays = _variable_arrays("held", loop)
        seed_generators(loop.seed, loop.position.step, number_for_seed(loop.rank))
        self._seeded_alike = True

    def record_gradients(self, loop: Any, trainer: Any) -> None:
        """Record the trainer's gradients after their sum over all workers."""
        trainer_number = loop.trainers.index(trainer)
        for index, param in enumerate(trainer._params):
            if param.grad_req != "null":
                gradient = _sketch_of(param.list_grad()[0].asnumpy()) * trainer._optimizer.rescale_grad
                self._gradients[f"gradient {trainer_number}.{index} {param.name}"] = gradient

    def kill_if_planned(self, loop: Any, moment: Moment) -> None:
        """Kill this process if the experiment plans a kill of this worker at this step and moment.

        `moment`: `before` this worker pushes its gradients, or `after` it has the sums.
        """
        for kill in self._order.kills:
            if (kill.step, kill.moment) == (loop.position.step + 1, moment) and self._is_killed(loop, kill.rank):
                with contextlib.suppress(FileExistsError):
                    self._order.kill_marker(kill).touch(exist_ok=False)
                    os.kill(os.getpid(), signal.SIGKILL)

    def _is_killed(self, loop: Any, rank: int) -> bool:
        return bool(loop.rank == min(rank, loop.workers - 1))

    def end_step(self, loop: Any) -> None:
        """Record the weights after a final step, and wait if the experiment changes the workers after this step."""
        self._rows, self._seeded_alike = None, False
        self._record_arrays(loop, draws=_next_draws())
        if not self._order.norms_file.exists():
            _write_atomically(self._order.norms_file, json.dumps(self._norms.known).encode())
        gate_file = self._order.gate_file(loop.position.step)
        while loop.position.step in self._order.held and not gate_file.exists():
            time.sleep(GATE_SECONDS)

    def _record_script(self) -> None:
        """Record the arrays that the script saves, and make weights initialised in a loop differ between workers.

        Weights that a script initialises inside a loop differ between workers in any job. So these weights must also
        differ in the experiment, although random draws for a batch are equal on all of the experiment's workers.
        """
        replacements, trial = Replaced(), self
        save, seed, finish = mx.nd.save, mx.random.seed, gluon.Parameter._finish_deferred_init

        def save_and_record(file: str, data: Any) -> None:
            save(file, data)
            named_arrays = (
                data if isinstance(data, dict) else dict(enumerate(data if isinstance(data, list) else [data]))
            )
            arrays = {f"{Path(file).name} {name}": _sketch_of(array.asnumpy()) for name, array in named_arrays.items()}
            _save_arrays(trial._order.saved_folder / f"{time.time_ns()}{SUFFIX}", arrays)

        def seed_and_record(*args: Any, **options: Any) -> None:
            trial._seeded_alike = False
            seed(*args, **options)

        def finish_with_own_draws(param: Any) -> None:
            seed_arguments, reseeds = (
                (trial._loop.seed, trial._loop.position.step),
                trial._seeded_alike and param._deferred_init,
            )
            if reseeds:
                seed_generators(*seed_arguments, trial._loop.rank, part=1)
            finish(param)
            if reseeds:
                seed_generators(*seed_arguments, number_for_seed(trial._loop.rank))
                trial._seeded_alike = True

        replacements.replace(mx.nd, "save", lambda _: save_and_record)
        replacements.replace(mx.random, "seed", lambda _: seed_and_record)
        replacements.replace(gluon.Parameter, "_finish_deferred_init", lambda _: finish_with_own_draws)

    def end_loop(self, loop: Any) -> None:
        """Record the script's variables after the script's last lines in the loop.

        A worker that joined too late for any step keeps its own initial weights until the next loop. The script must
        not depend on a late worker's weights, so this method changes them by a large amount.
        """
        if not self._has_stepped:
            for param in loop.state.equal:
                for device_copy in param.list_data():
                    device_copy[:] = -2 * device_copy + LARGE_CHANGE
        if (arrays_path := self._arrays_path(loop)).exists() and not self._order.rules:
            with np.load(arrays_path) as arrays:
                _save_arrays(arrays_path, {**arrays, **_variable_arrays("end", loop)})

    def _record_arrays(self, loop: Any, **more: Any) -> None:
        arrays = {f"{name} {label}": _sketch_of(array) for name, label, array in loop.state.compared_arrays()}
        _save_arrays(
            self._arrays_path(loop),
            {**arrays, **self._gradients, **self._variable_arrays, "epoch": loop.position.epoch, **more},
        )
        self._gradients, self._variable_arrays = {}, {}

    def _arrays_path(self, loop: Any) -> Path:
        generation = loop.membership.generation
        saved_step = SavedStep(self._loops, loop.position.step, generation, loop.workers, loop.rank, os.getpid())
        return self._order.steps_folder / saved_step.name


@functools.cache
def this_trial() -> Trial | None:
    current_order = trial_order()
    return None if current_order is None else Trial(current_order)


def _save_arrays(path: Path, arrays: dict[str, Any]) -> None:
    unfinished_file = path.with_name(f"_{path.name}")
    np.savez(unfinished_file, **arrays)
    unfinished_file.rename(path)


def _variable_arrays(kind: str, loop: Any) -> dict[str, Any]:
    """Return the arrays in the script's variables, without the nets' parameters, which are recorded separately."""
    arrays, variable_names = describe_arrays(lambda array: _sketch_of(np.asarray(array)), loop.state.parameters)
    return {**{f"{kind} {name}": array for name, array in arrays.items()}, f"names {kind}": np.array(variable_names)}


def _write_atomically(path: Any, content: bytes) -> None:
    unfinished_file = path.with_name(f"_{path.name}-{os.getpid()}")
    unfinished_file.write_bytes(content)
    unfinished_file.rename(path)


def _sketch_of(array: Any) -> Any:
    """Return a small array's numbers; for a large array, return a random projection to MOST_KEPT_NUMBERS numbers.

    The difference of two arrays' projections has about the same norm as the difference of the two arrays.
    """
    numbers = array.reshape(-1).astype(np.float64)
    if numbers.size <= MOST_KEPT_NUMBERS:
        return numbers
    random_signs = np.random.Generator(np.random.PCG64(SIGN_SEED)).integers(0, 2, numbers.size, dtype=np.int8)
    numbers *= 1 - 2 * random_signs
    return (
        np.concatenate([numbers, np.zeros(-numbers.size % MOST_KEPT_NUMBERS)])
        .reshape(-1, MOST_KEPT_NUMBERS)
        .sum(axis=0)
    )


def _next_draws() -> Any:
    """Return the next numbers of the global random generators, which differ between two runs that have drawn unequally
    before.

    MXNet draws each part of an array from a generator of its own, so an array of numbers is drawn from MXNet.
    """
    mxnet_draws = mx.nd.random.uniform(shape=DRAWN_NUMBERS).asnumpy().astype(np.float64)
    return np.array([random.random(), np.random.rand(), *mxnet_draws])


def _nudge(param: Any, random_generator: np.random.Generator) -> None:
    """Change each number of the parameter by one rounding error, randomly up or down.

    The change is at least a rounding error of float32, because sums over workers may be in float32.
    """
    values = param.list_data()[0].asnumpy()
    relative_error = max(np.finfo(values.dtype).eps, np.finfo(np.float32).eps)
    nudged_values = values * (1.0 + relative_error * random_generator.choice([-1.0, 1.0], values.shape))
    for device_copy in param.list_data():
        device_copy[:] = nudged_values.astype(values.dtype)


def _freeze_all(norms: FirstBatch) -> None:
    """Freeze Dropout and BatchNorm's statistics, whose results depend on a worker's share in any data-parallel
    training.
    """
    freeze_layers(norms, refuses=False)
    Replaced().replace(gluon.HybridBlock, "_call_cached_op", _call_and_trace)


def _call_and_trace(called: Any) -> Any:
    """Return a replacement for calls of hybridized blocks that also traces a block, so that the script can export the
    block.
    """
    traced_blocks: list[Any] = []

    def call_and_trace(block: Any, *args: Any) -> Any:
        if not traced_blocks and not block._cached_graph:
            traced_blocks.append(block)
            with contextlib.suppress(Exception):
                block._get_graph(*args)
            traced_blocks.clear()
        return called.__get__(block)(*args)  # a function, or the instrument's replacement

    return call_and_trace
