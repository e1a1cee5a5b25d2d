"""A blank ps-lite process: imports MXNet, says `ready`, and becomes a scheduler or a server when told.

Importing takes a second and the number of workers is known only at the boundary, so supervisors keep blanks at hand. One JSON line on
standard input, `{"role": "scheduler"|"server", "environment": {"DMLC_...": "..."}}`, sets it off; end of input means that the supervisor is gone.
"""

from __future__ import annotations

import json
import os
import sys

MAX_LINE = 64 * 1024


def main() -> int:
    os.environ.pop("DMLC_ROLE", None)  # with a role set, the import itself would start to serve
    import training.numpy_aliases  # noqa: F401
    import mxnet  # isort: skip  # noqa: F401
    from mxnet.kvstore.kvstore_server import _init_kvstore_server_module

    print("ready", flush=True)  # noqa: T201  # the supervisor reads it
    line = sys.stdin.readline(MAX_LINE)
    if not line:
        return 0
    order = json.loads(line)
    os.environ.update(order["environment"], DMLC_ROLE=order["role"], MXNET_KVSTORE_BIGARRAY_BOUND=str(2**31 - 1))
    _init_kvstore_server_module()  # serves, then exits the process
    return 0


if __name__ == "__main__":
    sys.exit(main())
