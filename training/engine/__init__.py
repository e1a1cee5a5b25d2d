"""The interface of communication engines: ps-lite, which every MXNet has, and Horovod, which may be installed.

The engines release survivors differently when a worker dies in a step. The servers of ps-lite wait for ever for the
dead worker's gradients, so survivors push zeros in its place (`release`: "zeros"). Horovod's all-reduce can be aborted:
then waiting workers get an error instead of their sums ("error").
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, cast, get_args

from dyntrain.training.protocol.engines import VARIABLE, EngineName


class SumsLost(RuntimeError):
    """The sums in flight will never arrive: another worker is gone, or this worker has aborted the exchange."""


class Store(Protocol):
    """The kvstore of one generation.

    Drop references to it when the generation ends, since a reference keeps the group of workers alive.
    """

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sum `value` over all workers into `out` (None: into `value` itself). May return before the sum is complete.

        `value` and `out` are arrays, or lists with one array for each context.
        """

    def parts_of(self, key_numbers: Sequence[int]) -> Sequence[Any]:
        """Return the parts in which the keys with these numbers are pushed. Each part has `length` and `dtype`.

        A key's number is its place in the keys given to `form`. Supported only if `release` is "zeros".
        """

    def pushpull_part(self, part: Any, flat: Any) -> None:
        """Push the computed array `flat` for a part, in place of a lost worker."""

    def flush(self) -> None:
        """Wait until the servers have processed all pushes of this worker, and their answers so far are here."""

    def watch(self, array: Any) -> Callable[[], bool]:
        """Return a function that says whether the pushed array was answered by the last `flush`."""

    def has_answer(self, part: Any) -> bool:
        """Whether the servers have answered a part of a split key.

        A part is pushed when the previous part is answered.
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
        """Join the generation that `environment` describes. Returns the seconds that each phase took.

        `keys` contains (name, shape, dtype) of every array that is summed. Blocks until all workers have joined,
        without a timeout.
        """

    def begin(self, array: Any) -> Callable[[], None]:
        """Prepare a push of gradients, of which `array` is computed last.

        Returns a function that waits until `array` is computed, and thereby pushed.
        """

    def wait(self, array: Any) -> None:
        """Wait for the array's sum. Raises SumsLost if the sum is lost and `release` is "error"."""

    def break_off(self) -> None:
        """Make all present and later calls of `wait` raise SumsLost soon. Call `break_off` from another thread.

        Supported only if `release` is "error". Afterwards the generation can only be dissolved.
        """

    def dissolve(self) -> None:
        """Leave the generation without waiting for other workers.

        Call `dissolve` when no sums are in flight, or after SumsLost for all sums.
        """

    def abandon(self) -> None:
        """Let the process end without waiting for the other workers or for sums in flight.

        Afterwards the process can only end, with its exit code unchanged. Does nothing outside a generation.
        """


STORES = ("dist_sync", "dist_device_sync", "dist_sync_device")  # MXNet's kvstores that a script may name


def store_named(name: Any) -> str | None:
    """Return a kvstore's name in lower case, as MXNet ignores case, or None if the name is not one of `STORES`."""
    return name.lower() if isinstance(name, str) and name.lower() in STORES else None


def engine_name(script_engine: str | None, environment: Mapping[str, str] = os.environ) -> EngineName:
    """Return the engine that the script names, or the environment, or by default ps-lite.

    Raises ValueError for an unknown name.
    """
    name = script_engine or environment.get(VARIABLE) or "pslite"
    if name not in get_args(EngineName):
        raise ValueError(f"engine {name!r}: choose {' or '.join(get_args(EngineName))}")
    return cast(EngineName, name)


def make_engine(name: EngineName, kind: str, host: str) -> Engine:
    """Make an engine. Raises ImportError, with advice, if this Python lacks the engine.

    `kind` is the kvstore that the script names, `host` the address of this worker.
    """
    if name == "horovod":
        from dyntrain.training.engine.allreduce import AllReduce

        return AllReduce(host)
    from dyntrain.training.engine.pslite import PsLite

    return PsLite(kind, host)
