"""The engine that uses ps-lite of unmodified MXNet 1.9.1.

Each generation has its own ps-lite group. A worker joins the group of a new generation without a restart of its
process.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from dyntrain.training.engine.parted import PartedStore, first_element_of
from dyntrain.training.engine.store import split
from dyntrain.training.protocol.engines import EngineName
from mxnet.base import _LIB, check_call
from mxnet.kvstore.base import create  # mx.kv.create may be replaced by the elastic function

_LIBC = ctypes.CDLL(None)
_SPLITTING_OFF = {"MXNET_KVSTORE_BIGARRAY_BOUND": str(2**31 - 1)}  # see dyntrain.training.engine.store


class PsLite:
    """The engine that uses ps-lite. `kind` is one of `STORES`. ps-lite of this worker listens on the address `host`."""

    name: EngineName = "pslite"
    release: Literal["zeros", "error"] = "zeros"  # survivors push zeros in place of a lost worker

    def __init__(self, kind: str = "dist_sync", host: str | None = None) -> None:
        self._kind, self._host = kind, host
        self._native: Any = None
        self._store: PartedStore | None = None
        atexit.register(self.abandon)

    @property
    def kvstore(self) -> PartedStore:
        if self._store is None:
            raise RuntimeError("no generation is formed: gradients can only be pushed between form() and dissolve()")
        return self._store

    def form(
        self, environment: Mapping[str, str], keys: Sequence[tuple[str, tuple[int, ...], str]]
    ) -> dict[str, float]:
        began_at = time.monotonic()
        os.environ.update(environment, DMLC_ROLE="worker", **_SPLITTING_OFF)
        if self._host:
            os.environ["DMLC_NODE_HOST"] = self._host
        self._native = create(self._kind)
        created_at = time.monotonic()
        parts = split(keys, int(os.environ["DMLC_NUM_SERVER"]))
        # The values do not matter (the state is transferred separately), so the arrays are not filled. New arrays are
        # used, as arrays in use abort the server now and then. One list takes only one barrier.
        empty_arrays = [mx.nd.empty(part.whole or (part.length,), dtype=part.dtype) for part in parts]
        self._native.init([part.number for part in parts], empty_arrays)
        self._store = PartedStore(self._native, parts)
        return {"create": created_at - began_at, "init": time.monotonic() - created_at}

    def begin_push(self, array: Any) -> Callable[[], None]:
        wait_for_gradient: Callable[[], None] = (
            first_element_of(array).copy().wait_to_read
        )  # a copy: the array itself waits for its answer
        return wait_for_gradient

    def wait(self, array: Any) -> None:
        array.wait_to_read()

    def break_off(self) -> None:
        raise NotImplementedError("an exchange of gradients by ps-lite cannot be broken off")

    def dissolve(self) -> None:
        if self._native is None:
            return
        mx.nd.waitall()
        # Freeing the store leaves the group. Waiting for its last reference would take a garbage collection: 0.07 s of
        # a large model's pause.
        native_store, self._native, self._store = self._native, None, None
        native_handle, native_store.handle = native_store.handle, ctypes.c_void_p()
        check_call(_LIB.MXKVStoreSetBarrierBeforeExit(native_handle, ctypes.c_int(0)))
        check_call(_LIB.MXKVStoreFree(native_handle))

    def abandon(self) -> None:
        if self._native is not None:
            # Freeing the store could wait for ever, and stop the servers that other workers use. If it is not freed,
            # ps-lite's destructors abort the process, so they must not run. The function registered last with on_exit
            # is called first, with the exit code of the script.
            native_store, self._native, self._store = self._native, None, None
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(native_store))
            _LIBC.on_exit(_LIBC._exit, None)
