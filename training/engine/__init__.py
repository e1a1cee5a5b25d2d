"""What the job needs of a communication engine: ps-lite, which every MXNet has, or Horovod, which a machine may have.

They differ in how survivors are freed when a worker dies in a step. ps-lite's servers wait for ever for what it owed;
survivors push zeros in its place (`release`: "zeros"). Horovod's all-reduce can be broken off: whoever waits for sums
gets an error in their place ("error").
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, cast, get_args

from dyntrain.training.protocol.engines import VARIABLE, EngineName


class SumsLost(RuntimeError):
    """What was in flight will never arrive: another worker is gone, or this one has broken it off."""


class Store(Protocol):
    """The store of one generation. Hold no reference over a boundary: it would keep the old group alive."""

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sum `value` over all workers into `out`; an array, or a list of one for each context. Need not wait for the
        sum.
        """

    def parts_of(self, numbers: Sequence[int]) -> Sequence[Any]:
        """What the keys of these numbers (their places in what `form` was given) are pushed as; each has `length` and
        `dtype`. Only where `release` is "zeros".
        """

    def pushpull_part(self, part: Any, flat: Any) -> None:
        """Push `flat`, which is there, for one of these parts, in the place of a worker that is gone."""

    def flush(self) -> None:
        """Until the servers have dealt with whatever this worker has pushed, and what they have answered is here."""

    def watch(self, array: Any) -> Callable[[], bool]:
        """Whether the array, which was pushed, had its answer at the last `flush`."""

    def has(self, part: Any) -> bool:
        """The same of a part, where a key has several, of which each is pushed when the one before is answered."""


class Engine(Protocol):
    """Sums gradients over the workers of one generation at a time."""

    name: EngineName
    release: Literal["zeros", "error"]

    @property
    def kvstore(self) -> Store: ...

    def form(
        self, environment: Mapping[str, str], keys: Sequence[tuple[str, tuple[int, ...], str]]
    ) -> dict[str, float]:
        """Join the generation that `environment` describes, with a key of (name, shape, dtype) for all that is summed;
        returns seconds of its phases.

        Blocks until all its workers are in, without a bound of its own.
        """

    def begin(self, array: Any) -> Callable[[], None]:
        """Before gradients are pushed, of which `array` is made last. What it returns waits until it is made, and with
        that pushed.
        """

    def wait(self, array: Any) -> None:
        """Until the array's sum is there. Raises SumsLost where `release` is "error"."""

    def break_off(self) -> None:
        """From another thread, where `release` is "error": whoever is in `wait`, or comes to it, gets SumsLost soon.
        The generation can only be dissolved after it.
        """

    def dissolve(self) -> None:
        """Leave the generation without waiting for the others. Call it where nothing is in flight, or after SumsLost
        for all that was.
        """

    def abandon(self) -> None:
        """After this the process can only end, with its own exit code and without waiting for the generation's others,
        whatever is still in flight. Nothing to do outside a generation.
        """


STORES = ("dist_sync", "dist_device_sync", "dist_sync_device")  # of MXNet's, that a script may name


def store_named(name: Any) -> str | None:
    """As MXNet reads it, without regard to capitals. None: it is not one of `STORES`."""
    return name.lower() if isinstance(name, str) and name.lower() in STORES else None


def engine_name(given: str | None, environment: Mapping[str, str] = os.environ) -> EngineName:
    """What the script says, else what whoever started it says, else ps-lite. Raises ValueError for an unknown one."""
    name = given or environment.get(VARIABLE) or "pslite"
    if name not in get_args(EngineName):
        raise ValueError(f"engine {name!r}: there are {' and '.join(get_args(EngineName))}")
    return cast(EngineName, name)


def make_engine(name: EngineName, kind: str, host: str) -> Engine:
    """`kind` is the kvstore that the script names; `host` the address that this worker is reached at. Raises
    ImportError, with advice, where this Python has no such engine.
    """
    if name == "horovod":
        from dyntrain.training.engine.allreduce import AllReduce

        return AllReduce(host)
    from dyntrain.training.engine.pslite import PsLite

    return PsLite(kind, host)
