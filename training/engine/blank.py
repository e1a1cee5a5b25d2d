"""The fork server of ps-lite processes (see `training.forkserver`): imports MXNet, and serves.

`python -m training.engine.blank`, with the socket that `ForkServerLine` names in the environment.
"""

from __future__ import annotations

import os
import sys

from training.forkserver import serve


def become(role: str, environment: dict[str, str]) -> None:
    """A scheduler or a server, until all workers have left the group."""
    from mxnet.kvstore.kvstore_server import _init_kvstore_server_module

    os.environ.update(environment, DMLC_ROLE=role, MXNET_KVSTORE_BIGARRAY_BOUND=str(2**31 - 1))
    _init_kvstore_server_module()


def main() -> int:
    os.environ.pop("DMLC_ROLE", None)  # with a role set, the import itself would start to serve
    import training.numpy_aliases  # noqa: F401
    import mxnet  # isort: skip  # starts no thread: its engine begins in the forked process, when it is first used
    import mxnet.kvstore.kvstore_server  # isort: skip  # noqa: F401

    return serve(become)


if __name__ == "__main__":
    sys.exit(main())
