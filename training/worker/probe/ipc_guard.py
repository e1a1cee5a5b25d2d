"""Prevent a forked child process from using its parent's connections, queues and process pools.

If the child took data from a shared queue, the parent would not get the data. A child that is killed while it waits may
leave a shared lock locked forever.
"""

from __future__ import annotations

import multiprocessing.connection
import multiprocessing.pool
import multiprocessing.queues
import multiprocessing.resource_sharer
import multiprocessing.synchronize
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import NoReturn

from dyntrain.training.worker.replaced import Replaced

SOCKET_METHODS = (
    "send",
    "sendall",
    "sendto",
    "sendmsg",
    "recv",
    "recv_into",
    "recvfrom",
    "recvfrom_into",
    "recvmsg",
    "accept",
)
GUARDED_METHODS: dict[type, tuple[str, ...]] = {
    multiprocessing.connection.Connection: ("send", "recv", "send_bytes", "recv_bytes", "recv_bytes_into", "poll"),
    multiprocessing.queues.Queue: ("get", "put"),
    multiprocessing.queues.JoinableQueue: ("put", "task_done"),
    multiprocessing.queues.SimpleQueue: ("get", "put"),
    multiprocessing.synchronize.SemLock: ("__enter__",),
    multiprocessing.pool.Pool: ("_check_running",),  # each method of a pool calls this method first
    multiprocessing.pool.ApplyResult: ("get", "wait"),
    multiprocessing.resource_sharer.DupFd: ("detach",),  # for an array that another process has loaded
    ProcessPoolExecutor: ("submit",),
    socket.socket: SOCKET_METHODS,
    ssl.SSLSocket: (*SOCKET_METHODS, "read", "write"),
}


def guard_ipc(end_process: Callable[..., NoReturn]) -> None:
    """In this process, replace all methods of sockets, queues, locks and pools that reach another process by
    `end_process`.
    """
    replacements = Replaced()
    for guarded_class, method_names in GUARDED_METHODS.items():
        for method_name in method_names:
            replacements.replace(guarded_class, method_name, lambda _: end_process)
