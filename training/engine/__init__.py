"""The interface of the engines that sum gradients: ps-lite, a part of MXNet, and Horovod, an optional package.

The two engines release the surviving workers differently when a worker dies in a step. The servers of ps-lite wait for
ever for the dead worker's gradients, so survivors push zeros in place of the dead worker (`release` is "zeros").
Horovod's all-reduce can be aborted, and waiting workers then get an error instead of their sums (`release` is "error").
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, cast, get_args

from dyntrain.training.protocol.engines import VARIABLE, EngineName


class SumsLost(RuntimeError):
    """The awaited sums will never arrive, as another worker died or this worker aborted the exchange."""


class Store(Protocol):
    """The kvstore of one generation (a fixed group of workers).

    Keep no reference to the kvstore after the generation has ended, since a reference keeps the group's connections
    open.
    """

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sum `value` over all workers into `out`, or if `out` is None into `value`.

        May return before the sum is complete.

        `value` and `out` are arrays, or lists with one array for each context.
        """

    def parts_of(self, key_numbers: Sequence[int]) -> Sequence[Any]:
        """Return the parts in which the keys with the numbers `key_numbers` are pushed.

        Each part has the attributes `length` and `dtype`.

        A key's number is its index in the sequence `keys` given to `Engine.form`. This method is supported only if
        `Engine.release` is "zeros".
        """

    def pushpull_part(self, part: Any, flat: Any) -> None:
        """Push the array `flat`, which is already computed, for a part that a lost worker has not pushed."""

    def flush(self) -> None:
        """Wait until the servers have processed this worker's pushes, and all answers of the servers have arrived."""

    def watch(self, array: Any) -> Callable[[], bool]:
        """Return a function that says whether the answer to the pushed array had arrived at the last `flush`."""

    def has_answer(self, part: Any) -> bool:
        """Whether the servers have answered the push of a part of a split key.

        A part of a key is pushed only after the servers have answered the previous part.
        """


class Engine(Protocol):
    """Sums gradients over the workers of one generation at a time."""

    name: EngineName
    release: Literal["zeros", "error"]  # how survivors get free when a worker dies in a step

    @property
    def kvstore(self) -> Store: ...

    def form(
        self, environment: Mapping[str, str], keys: Sequence[tuple[str, tuple[int, ...], str]]
    ) -> dict[str, float]:
        """Join the generation that `environment` describes.

        Returns the seconds that each phase of forming the generation took, by the phase's name.

        `keys` contains (name, shape, dtype) of every array that is summed. The call blocks, without a timeout, until
        all workers have joined.
        """

    def begin_push(self, array: Any) -> Callable[[], None]:
        """Prepare a push of gradients. `array` is the gradient that is computed last.

        Returns a function that waits until `array` is computed, which is when the push of `array` starts.
        """

    def wait(self, array: Any) -> None:
        """Wait until the sum of a pushed array is in `array`.

        Raises SumsLost if `release` is "error" and the sum is lost.
        """

    def break_off(self) -> None:
        """Make all present and later calls of `wait` raise SumsLost soon.

        Call `break_off` from a thread that does not wait.

        This method is supported only if `release` is "error". After `break_off`, the generation can only be dissolved.
        """

    def dissolve(self) -> None:
        """Leave the generation without waiting for other workers.

        Call `dissolve` when no sums are in flight, or when `wait` has raised SumsLost for all sums in flight.
        """

    def abandon(self) -> None:
        """Let the process end without waiting for the other workers or for sums in flight.

        After `abandon`, the process can only exit, and its exit code does not change. Without a formed generation,
        `abandon` does nothing.
        """


STORES = ("dist_sync", "dist_device_sync", "dist_sync_device")  # MXNet's kvstores that a script may name


def kvstore_name(name: Any) -> str | None:
    """Return a kvstore's name in lower case, as MXNet ignores case, or None if the name is not one of `STORES`."""
    return name.lower() if isinstance(name, str) and name.lower() in STORES else None


def engine_name(script_engine: str | None, environment: Mapping[str, str] = os.environ) -> EngineName:
    """Return the engine that the script names, or else the environment's engine, or else "pslite".

    Raises ValueError for an unknown engine.
    """
    name = script_engine or environment.get(VARIABLE) or "pslite"
    if name not in get_args(EngineName):
        raise ValueError(f"engine {name!r}: choose {' or '.join(get_args(EngineName))}")
    return cast(EngineName, name)


def make_engine(name: EngineName, kind: str, host: str) -> Engine:
    """Make the engine `name`. Raises ImportError with advice if the engine's package is not installed.

    `kind` is the kvstore that the script names. `host` is the address of this worker.
    """
    if name == "horovod":
        from dyntrain.training.engine.allreduce import AllReduce

        return AllReduce(host)
    from dyntrain.training.engine.pslite import PsLite

    return PsLite(kind, host)
