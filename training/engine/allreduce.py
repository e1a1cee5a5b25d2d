"""The engine that uses Horovod 0.28.1 with Gloo.

Gradients are summed by all-reduce. When the workers change, their group is formed again inside the running processes.

This engine has no servers, so a base node is needed only to run the rendezvous while a generation forms.

When a worker dies, only the workers that wait for the dead worker get an error from Horovod. Two survivors that wait
for each other would wait until Gloo's timeout (observed with four workers). So each survivor closes its own connections
when the coordinator reports that a worker died.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal
from uuid import uuid4

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.missing import require

import mxnet as mx  # isort: skip
from dyntrain.training.engine import SumsLost
from dyntrain.training.engine.interfaces import interface_of
from dyntrain.training.engine.rendezvous import ADDRESS, PORT
from dyntrain.training.protocol.engines import EngineName

# A day: the coordinator decides which workers are lost, and ends a worker that never forms; Gloo's timeout must not.
GLOO_TIMEOUT_SECONDS = "86400"
GRACE_SECONDS = 0.25  # time for Horovod's threads to agree to end
CONNECT_SECONDS, PAUSE_SECONDS = 5.0, 0.01  # timeout of an attempt to connect, and pause after it
PROBE_TIMEOUT_SECONDS = 10.0  # delay of the report of a script's own error; a lost worker is reported sooner


class AllReduce:
    """The engine that uses Horovod. `host` is the address of this worker's network interface for Horovod."""

    name: EngineName = "horovod"
    release: Literal["zeros", "error"] = "error"  # survivors of a lost worker get an error

    def __init__(self, host: str) -> None:
        self._host = host
        self._hvd = _import_horovod()
        self._connections: set[tuple[int, int]] = set()
        self._ended = False  # whether Horovod's thread has ended in this generation
        self._store: HorovodStore | None = None

    @property
    def kvstore(self) -> HorovodStore:
        if self._store is None:
            raise RuntimeError("no generation is formed: gradients can only be pushed between form() and dissolve()")
        return self._store

    def form(
        self, environment: Mapping[str, str], keys: Sequence[tuple[str, tuple[int, ...], str]]
    ) -> dict[str, float]:
        began_at = time.monotonic()
        os.environ.update(
            environment,
            HOROVOD_CONTROLLER="gloo",
            HOROVOD_CPU_OPERATIONS="gloo",
            HOROVOD_GLOO_IFACE=interface_of(self._host),
            HOROVOD_GLOO_TIMEOUT_SECONDS=GLOO_TIMEOUT_SECONDS,
        )
        os.environ.pop("HOROVOD_ELASTIC", None)  # Horovod's own elasticity needs a driver, which does not exist here
        _wait_for_listener(environment[ADDRESS], int(environment[PORT]))
        earlier_sockets = set(_open_sockets())
        self._hvd.init()
        # These may include other connections of this process, e.g. of a state transfer. Such connections are closed
        # before a break, or are made again.
        self._connections = set(_open_sockets()) - earlier_sockets
        # Each init() registers an exit handler that waits for the other workers. `abandon` must run before it.
        atexit.unregister(self.abandon)
        atexit.register(self.abandon)
        self._ended = False
        self._store = HorovodStore(self._hvd)
        return {"create": time.monotonic() - began_at, "init": 0.0}

    def begin_push(self, array: Any) -> Callable[[], None]:
        return lambda: None

    def wait(self, array: Any) -> None:
        try:
            array.wait_to_read()
        except mx.base.MXNetError as error:
            self._ended = self._ended or self._thread_has_ended()
            if not self._ended:  # an operator of the script's has failed
                raise
            raise SumsLost(str(error).strip().splitlines()[-1]) from None

    def _thread_has_ended(self) -> bool:
        """Whether Horovod's background thread has ended.

        A test request shows whether the thread has ended, as error texts are not reliable.

        After the thread has ended, the test request fails. While the thread runs, the test request only waits, because
        no other worker makes the same request.
        """
        probe_array = mx.nd.zeros((1,))
        self._hvd.allreduce_(probe_array, op=self._hvd.Sum, name=f"probe {uuid4()}")
        probe_failed = threading.Event()

        def watch_probe() -> None:
            try:
                probe_array.wait_to_read()
            except mx.base.MXNetError:
                probe_failed.set()

        threading.Thread(target=watch_probe, name="probe", daemon=True).start()
        return probe_failed.wait(PROBE_TIMEOUT_SECONDS)

    def break_off(self) -> None:
        for descriptor, inode in self._connections:
            with contextlib.suppress(OSError):
                _shut_down(descriptor, inode)

    def dissolve(self) -> None:
        if self._store is None:
            return
        self._store = None
        with contextlib.suppress(mx.base.MXNetError):  # sums lost in flight, already reported
            mx.nd.waitall()
        # The workers' Horovod threads agree to end. If a worker is gone, the threads might wait for each other.
        break_off_timer = threading.Timer(GRACE_SECONDS, self.break_off)
        break_off_timer.start()
        self._hvd.shutdown()
        break_off_timer.cancel()
        break_off_timer.join()
        self._connections = set()

    def abandon(self) -> None:
        """Close Horovod's connections, so that other workers that wait for sums get an error at once."""
        self._store = None
        self.break_off()


def _nd_arrays(arrays: Any) -> list[Any]:
    """Return `mx.nd` arrays that share the memory of `arrays`, as Horovod's operators do not accept `mx.np` arrays."""
    return [array.as_nd_ndarray() for array in (arrays if isinstance(arrays, list) else [arrays])]


class HorovodStore:
    """The kvstore of one generation, which sums arrays by Horovod's all-reduce."""

    def __init__(self, hvd: Any) -> None:
        self._hvd = hvd

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        input_arrays = _nd_arrays(value)
        output_arrays = input_arrays if out is None else _nd_arrays(out)
        sum_array = output_arrays[0]
        if len(input_arrays) > 1:
            mx.nd.add_n(*[array.as_in_context(sum_array.context) for array in input_arrays], out=sum_array)
        elif out is not None:
            input_arrays[0].copyto(sum_array)
        self._hvd.allreduce_(sum_array, op=self._hvd.Sum, name=str(key), priority=priority)
        for output_array in output_arrays[1:]:
            sum_array.copyto(output_array)

    def parts_of(self, key_numbers: Sequence[int]) -> Sequence[Any]:
        raise NotImplementedError("Horovod has no pushes in place of a dead worker")

    def pushpull_part(self, part: Any, flat: Any) -> None:
        raise NotImplementedError("Horovod has no pushes in place of a dead worker")

    def flush(self) -> None:
        raise NotImplementedError("Horovod has no servers")

    def watch(self, array: Any) -> Callable[[], bool]:
        raise NotImplementedError("Horovod has no pushes in place of a dead worker")

    def has_answer(self, part: Any) -> bool:
        raise NotImplementedError("Horovod has no pushes in place of a dead worker")


def _import_horovod() -> Any:
    """Import Horovod. Raises ExtraMissing, or ImportError if Horovod was built without MXNet or Gloo."""
    require(("horovod",))
    import horovod.mxnet as hvd

    if not hvd.gloo_built():
        raise ImportError("this Horovod was built without Gloo: build it with HOROVOD_WITH_GLOO=1", name="horovod")
    return hvd


def _wait_for_listener(address: str, port: int) -> None:
    """Wait until the address accepts connections, as Horovod would exit the process after three failed attempts.

    This function has no timeout, as the coordinator limits how long a generation may take to form.
    """
    while True:
        with contextlib.suppress(OSError), socket.create_connection((address, port), CONNECT_SECONDS):
            return
        time.sleep(PAUSE_SECONDS)


def _open_sockets() -> Iterator[tuple[int, int]]:
    """Yield (descriptor, inode) of each open socket of this process.

    The inode identifies the socket, also after its descriptor number was reused.
    """
    for descriptor_name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError, ValueError):
            link_target = os.readlink(f"/proc/self/fd/{descriptor_name}")
            if link_target.startswith("socket:["):
                yield int(descriptor_name), int(link_target[8:-1])


def _shut_down(descriptor: int, inode: int) -> None:
    """Shut down the socket with this inode, unless another socket now has the descriptor.

    Raises OSError, also for a socket without a connection.
    """
    with socket.socket(fileno=os.dup(descriptor)) as duplicate_socket:
        if os.fstat(duplicate_socket.fileno()).st_ino == inode:
            duplicate_socket.shutdown(socket.SHUT_RDWR)
