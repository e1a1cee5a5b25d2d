"""A worker's part in `dyntrain check`; a process outside of such an experiment does not use it.

A worker saves its weights after each final step, ends its loops early, and waits or kills itself at the steps that the
experiment plans.
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
from dyntrain.training.trial_files import SUFFIX, Moment, Order, Taken, order
from dyntrain.training.worker.data.randomness import draws_as, seed_generators
from dyntrain.training.worker.loop.held import held
from dyntrain.training.worker.loop.loop_config import LoopConfig
from dyntrain.training.worker.probe.draws import DRAWN_NUMBERS, Rows, draw_for_rows
from dyntrain.training.worker.probe.freeze_layers import Moments, Statistics, freeze_layers
from dyntrain.training.worker.replaced import Replaced
from mxnet import gluon

BATCHES = 4  # whole batches of an epoch, by default
KEPT_WHOLE = 4096  # numbers; larger arrays become as many signed sums, whose differences are as large as the arrays'
SIGNS = 1  # seed of the signs, the same in every process
GATE_SECONDS = 0.02  # between two looks for the file that ends a wait
LARGE_CHANGE = 0.5  # added to weights on which nothing may depend


class FirstBatch(Statistics):
    """Mean and variance of each norm's first batch, used in all later steps too. A norm is a normalization layer."""

    def __init__(self, known: list[Moments]) -> None:
        super().__init__(None)
        self.known = known
        self._norms: dict[
            int, tuple[int, Any]
        ] = {}  # by ids of the running means, held so that no other array gets the id

    def of(self, data: Any, axis: int, like: Any) -> list[Any]:
        number, _ = self._norms.setdefault(id(like), (len(self._norms), like))
        if number < len(self.known):
            make = mx.np.array if isinstance(data, mx.np.ndarray) else mx.nd.array
            return [make(each, dtype=like.dtype, ctx=data.ctx) for each in self.known[number]]
        taken = super().of(data, axis, like)
        self.known.append(self.seen[-1])
        return taken


class Trial:
    """The part of one process in an experiment."""

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
        """Return the loop's settings with the experiment's limits."""
        order, batch = self._order, config.largest_batch
        if isinstance(config.batching, PerWorker):
            order.follows_file.touch()
        cap = BATCHES * batch + (config.samples % batch or batch) if order.samples is None else order.samples
        if config.drawn is None and cap < config.samples:
            config = replace(config, samples=cap, drawn_from=config.drawn_from or config.samples)
        epochs = config.epochs if order.epochs is None else min(config.epochs, order.epochs)
        steps = min(config.steps or order.steps, order.steps)
        # a probe of the first batch must not end a run whose weights are compared
        return replace(config, epochs=epochs, steps=steps, probe=config.probe and order.rules)

    def begin_loop(self, loop: Any) -> None:
        """Prepare the process at its first loop, and record the initial weights.

        Initial weights are recorded only if this worker begins at the loop's first step.
        """
        if not self._loops:
            _freeze_all(self._norms)
            draw_for_rows(lambda: self._rows)
            self._record_script()
        self._loops, self._loop, self._has_stepped = self._loops + 1, loop, False
        if loop.membership.over or loop.position.step != loop.starts.step:
            return
        self._write(loop)
        if self._order.nudge and self._loops == 1:
            rng = np.random.default_rng(self._order.seed)
            for param in loop.state.equal:
                _nudge(param, rng)

    def begin_step(self, loop: Any, rows: Any, size: int) -> None:
        """Seed the generators for a batch of `size` samples over all workers, of which `rows` are this worker's.

        The script's draws for the batch are made for all samples, equally on all workers.
        """
        self._rows = len(rows), size, slice(int(rows[0]), int(rows[-1]) + 1)
        self._has_stepped = True
        if not self._order.rules:
            self._variable_arrays = _variable_arrays("held", loop)
        seed_generators(loop.seed, loop.position.step, draws_as(loop.rank))
        self._seeded_alike = True

    def record_gradients(self, loop: Any, trainer: Any) -> None:
        """Record the trainer's gradients, which are summed over all workers."""
        t = loop.trainers.index(trainer)
        for i, param in enumerate(trainer._params):
            if param.grad_req != "null":
                gradient = _sketched(param.list_grad()[0].asnumpy()) * trainer._optimizer.rescale_grad
                self._gradients[f"gradient {t}.{i} {param.name}"] = gradient

    def kill_if_planned(self, loop: Any, moment: Moment) -> None:
        """Kill this process if the order says so.

        `moment`: `before` this worker pushes its gradients, or `after` it has the sums.
        """
        for kill in self._order.kills:
            if (kill.step, kill.moment) == (loop.position.step + 1, moment) and self._is_killed(loop, kill.rank):
                with contextlib.suppress(FileExistsError):
                    self._order.done(kill).touch(exist_ok=False)
                    os.kill(os.getpid(), signal.SIGKILL)

    def _is_killed(self, loop: Any, rank: int) -> bool:
        return bool(loop.rank == min(rank, loop.workers - 1))

    def end_step(self, loop: Any) -> None:
        """Record the weights after a final step, and wait if the order says so."""
        self._rows, self._seeded_alike = None, False
        self._write(loop, draws=_next_draws())
        if not self._order.norms_file.exists():
            _write_whole(self._order.norms_file, json.dumps(self._norms.known).encode())
        gate = self._order.gate(loop.position.step)
        while loop.position.step in self._order.held and not gate.exists():
            time.sleep(GATE_SECONDS)

    def _record_script(self) -> None:
        """Record the arrays that the script saves, and draw each worker's own weights for nets initialised in a loop.

        Such weights differ between workers of any job, although draws for a batch are equal in this experiment.
        """
        replaced, trial = Replaced(), self
        save, seed, finish = mx.nd.save, mx.random.seed, gluon.Parameter._finish_deferred_init

        def saves(file: str, data: Any) -> None:
            save(file, data)
            named = data if isinstance(data, dict) else dict(enumerate(data if isinstance(data, list) else [data]))
            arrays = {f"{Path(file).name} {name}": _sketched(array.asnumpy()) for name, array in named.items()}
            _save(trial._order.saved_folder / f"{time.time_ns()}{SUFFIX}", arrays)

        def seeds(*args: Any, **options: Any) -> None:
            trial._seeded_alike = False
            seed(*args, **options)

        def finishes(param: Any) -> None:
            seed_and_step, is_seeded = (
                (trial._loop.seed, trial._loop.position.step),
                trial._seeded_alike and param._deferred_init,
            )
            if is_seeded:
                seed_generators(*seed_and_step, trial._loop.rank, part=1)
            finish(param)
            if is_seeded:
                seed_generators(*seed_and_step, draws_as(trial._loop.rank))
                trial._seeded_alike = True

        replaced.replace(mx.nd, "save", lambda _: saves)
        replaced.replace(mx.random, "seed", lambda _: seeds)
        replaced.replace(gluon.Parameter, "_finish_deferred_init", lambda _: finishes)

    def end_loop(self, loop: Any) -> None:
        """Record the script's variables after the script's own end of the loop's last epoch.

        A worker that came too late for any step has initial weights of its own until the next loop. The script must not
        depend on these weights, so they are changed by a large amount.
        """
        if not self._has_stepped:
            for param in loop.state.equal:
                for copy in param.list_data():
                    copy[:] = -2 * copy + LARGE_CHANGE
        if (path := self._path(loop)).exists() and not self._order.rules:
            with np.load(path) as arrays:
                _save(path, {**arrays, **_variable_arrays("end", loop)})

    def _write(self, loop: Any, **more: Any) -> None:
        arrays = {f"{name} {label}": _sketched(array) for name, label, array in loop.state.compared()}
        _save(
            self._path(loop),
            {**arrays, **self._gradients, **self._variable_arrays, "epoch": loop.position.epoch, **more},
        )
        self._gradients, self._variable_arrays = {}, {}

    def _path(self, loop: Any) -> Path:
        generation = loop.membership.generation
        file_name = Taken(self._loops, loop.position.step, generation, loop.workers, loop.rank, os.getpid())
        return self._order.steps_folder / file_name.name


@functools.cache
def this_trial() -> Trial | None:
    current_order = order()
    return None if current_order is None else Trial(current_order)


def _save(path: Path, arrays: dict[str, Any]) -> None:
    unfinished = path.with_name(f"_{path.name}")
    np.savez(unfinished, **arrays)
    unfinished.rename(path)


def _variable_arrays(kind: str, loop: Any) -> dict[str, Any]:
    """Return the script's variables without the parameters, which are recorded anyway."""
    arrays, names = held(lambda array: _sketched(np.asarray(array)), loop.state.parameters)
    return {**{f"{kind} {name}": array for name, array in arrays.items()}, f"names {kind}": np.array(names)}


def _write_whole(path: Any, content: bytes) -> None:
    unfinished = path.with_name(f"_{path.name}-{os.getpid()}")
    unfinished.write_bytes(content)
    unfinished.rename(path)


def _sketched(array: Any) -> Any:
    """Return the numbers of an array, or fewer sums whose differences have about the same norm."""
    flat = array.reshape(-1).astype(np.float64)
    if flat.size <= KEPT_WHOLE:
        return flat
    signs = np.random.Generator(np.random.PCG64(SIGNS)).integers(0, 2, flat.size, dtype=np.int8)
    flat *= 1 - 2 * signs
    return np.concatenate([flat, np.zeros(-flat.size % KEPT_WHOLE)]).reshape(-1, KEPT_WHOLE).sum(axis=0)


def _next_draws() -> Any:
    """Return the next numbers of the global generators, which differ if other numbers were drawn before.

    MXNet has one generator for each of many parts of an array.
    """
    uniform = mx.nd.random.uniform(shape=DRAWN_NUMBERS).asnumpy().astype(np.float64)
    return np.array([random.random(), np.random.rand(), *uniform])


def _nudge(param: Any, rng: np.random.Generator) -> None:
    """Change each number of the parameter by one rounding error, up or down.

    The error is at least that of float32, because the sums may be of floats.
    """
    first = param.list_data()[0].asnumpy()
    eps = max(np.finfo(first.dtype).eps, np.finfo(np.float32).eps)
    nudged = first * (1.0 + eps * rng.choice([-1.0, 1.0], first.shape))
    for copy in param.list_data():
        copy[:] = nudged.astype(first.dtype)


def _freeze_all(norms: FirstBatch) -> None:
    """Freeze layers that differ between shares in any data parallelism: Dropout, and BatchNorm's statistics."""
    freeze_layers(norms, refuses=False)
    Replaced().replace(gluon.HybridBlock, "_call_cached_op", _traced_too)


def _traced_too(called: Any) -> Any:
    """Return a call of hybridized blocks that also traces these blocks, so that a script can export them."""
    tracing: list[Any] = []

    def traced_too(block: Any, *args: Any) -> Any:
        if not tracing and not block._cached_graph:
            tracing.append(block)
            with contextlib.suppress(Exception):
                block._get_graph(*args)
            tracing.clear()
        return called.__get__(block)(*args)  # a function, or the instrument's replacement

    return traced_too
