"""A worker's script that wants the elastic face and has MXNet's own, as it was launched without `--dt-scripts`: it
dies, on a name that MXNet has not or on a store whose servers nobody has started. It is told so at its first start.
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


class _Asked:
    """What the script has asked MXNet for in vain. Python may swallow the error (`from mxnet.mod import ...`)."""

    said = ""


def _refuse(what: str, kind: type[Exception]) -> NoReturn:
    _Asked.said = ADVICE.format(what=what)
    raise kind(_Asked.said)


class _Missing:
    def __get__(self, module: Any, owner: type) -> Any:
        _refuse(f"mxnet.mod.{ITERATOR} is not MXNet's", AttributeError)


def tell(mxnet: ModuleType) -> None:
    """From now on, in this process. Its exit code is FACE_WANTED then."""
    create = mxnet.kvstore.create

    def create_or_tell(name: Any = "local") -> Any:
        if isinstance(name, str) and "dist" in name.lower():
            _refuse(f"kvstore {name!r} has no servers in a job", RuntimeError)
        return create(name)

    mxnet.kvstore.create = create_or_tell
    mxnet.module.__class__ = type("MxnetModule", (type(mxnet.module),), {ITERATOR: _Missing()})
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        if _Asked.said:
            if _Asked.said not in str(error):
                sys.stderr.write(f"{_Asked.said}\n")
            raise SystemExit(FACE_WANTED)

    sys.excepthook = hook
