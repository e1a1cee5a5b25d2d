"""Runs the fork server for an engine's processes: imports MXNet, then calls `dyntrain.training.host.forkserver.serve`.

The command is `python -m dyntrain.training.engine.blank`, with an environment from `ForkServerSocket`.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading

from dyntrain.training.host.allocator import fill_memory, keep_freed_memory, share_freed_memory
from dyntrain.training.host.forkserver import serve
from dyntrain.training.protocol.engines import SERVER_MEMORY

MAX_KEPT_BYTES = 2**31 - 1  # most bytes that a server may keep between two steps


def become(role: str, environment: dict[str, str]) -> None:
    """Run as the process `role`: ps-lite's scheduler, a ps-lite server, or Horovod's rendezvous.

    A scheduler or server runs until all workers have left the group, and the rendezvous runs until it is killed.

    MXNet's own server loop (`mxnet.kvstore.kvstore_server`) unpickles the body of a command, to receive an optimizer,
    and ps-lite has no authentication. A server that this function runs refuses all commands and only sums, as the
    optimizer runs in the workers.
    """
    if role == "rendezvous":
        from dyntrain.training.engine.rendezvous import serve_rendezvous

        serve_rendezvous(environment)
        return
    import mxnet
    from mxnet.base import _LIB, check_call

    os.environ.update(environment, DMLC_ROLE=role, MXNET_KVSTORE_BIGARRAY_BOUND=str(2**31 - 1))
    if role == "server":
        share_freed_memory()
        keep_freed_memory(MAX_KEPT_BYTES)
        memory_limit = int(os.environ.get(SERVER_MEMORY, 0))
        # in parallel to ps-lite's start, which is mostly waiting, and before the workers can send data
        threading.Thread(target=fill_memory, args=(memory_limit,), daemon=True).start()
    server_store = mxnet.kv.create("dist")
    refuse_callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(_refuse_command)
    check_call(_LIB.MXKVStoreRunServer(server_store.handle, refuse_callback, None))


def _refuse_command(command_number: int, body: bytes, _: object) -> None:
    """Refuse a command that a server received.

    The command's body is not logged, as anyone who reaches the server's port can send a command.
    """
    sys.stderr.write(
        f"refused command {command_number} from the network: a server takes no optimizer and runs no command\n"
    )
    sys.stderr.flush()


def main() -> int:
    os.environ.pop("DMLC_ROLE", None)  # with a role set, the import itself would start a server
    import dyntrain.training.numpy_aliases  # noqa: F401
    import mxnet  # noqa: F401  # isort: skip  # starts no thread: its engine begins in the forked process

    return serve(become)


if __name__ == "__main__":
    sys.exit(main())
