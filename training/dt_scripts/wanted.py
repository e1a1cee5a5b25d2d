"""Advice for a worker's script that needs the elastic interface, but was launched without `--dt-scripts`.

Such a script dies on a name that MXNet lacks, or on a kvstore without servers. It gets this advice at its first start.
"""

from __future__ import annotations

import sys
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from dyntrain.training.protocol.node_messages import FACE_WANTED

ADVICE = (
    '{what}: a script of AWS Dynamic Training is launched with --dt-scripts, or with "dt_scripts": true in its '
    "cluster's NodeFields; a Gluon script trains with ElasticJob, training/GUIDE.md says how"
)
ITERATOR = "BaseDataIterator"


class _Refusal:
    """Advice for what the script asked MXNet for, kept since Python may swallow the error (`from mxnet.mod import
    ...`).
    """

    advice = ""


def _refuse(what: str, kind: type[Exception]) -> NoReturn:
    _Refusal.advice = ADVICE.format(what=what)
    raise kind(_Refusal.advice)


class _Missing:
    def __get__(self, module: Any, owner: type) -> Any:
        _refuse(f"mxnet.mod.{ITERATOR} is not MXNet's", AttributeError)


def tell(mxnet: ModuleType) -> None:
    """Make this process print the advice and exit with FACE_WANTED."""
    create = mxnet.kvstore.create

    def create_or_tell(name: Any = "local") -> Any:
        if isinstance(name, str) and "dist" in name.lower():
            _refuse(f"kvstore {name!r} has no servers in a job", RuntimeError)
        return create(name)

    mxnet.kvstore.create = create_or_tell
    mxnet.module.__class__ = type("MxnetModule", (type(mxnet.module),), {ITERATOR: _Missing()})
    earlier_hook = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        earlier_hook(kind, error, trace)
        if _Refusal.advice:
            if _Refusal.advice not in str(error):
                sys.stderr.write(f"{_Refusal.advice}\n")
            raise SystemExit(FACE_WANTED)

    sys.excepthook = hook
