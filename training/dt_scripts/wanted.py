"""Advice for a worker's script that needs the elastic interface, but was launched without `--dt-scripts`.

Without the elastic interface, a script of AWS Dynamic Training fails at a name that MXNet lacks, or at a kvstore
without servers. When the script fails, the advice is printed, and the exit code tells the supervisor the cause.
"""

from __future__ import annotations

import sys
from types import ModuleType, TracebackType
from typing import Any, NoReturn

from dyntrain.training.protocol.node_messages import FACE_WANTED

ADVICE = (
    '{problem}: launch a script of AWS Dynamic Training with --dt-scripts, or with "dt_scripts": true in the '
    "cluster's NodeFields; a Gluon script needs ElasticJob, see training/GUIDE.md"
)
ITERATOR_NAME = "BaseDataIterator"


class _StoredAdvice:
    """Stores the advice to print, since Python may replace the error's message (as for `from mxnet.mod import ...`)."""

    advice = ""


def _advise_and_raise(problem: str, error_class: type[Exception]) -> NoReturn:
    _StoredAdvice.advice = ADVICE.format(problem=problem)
    raise error_class(_StoredAdvice.advice)


class _MissingName:
    def __get__(self, module: Any, owner: type) -> Any:
        _advise_and_raise(f"mxnet.mod.{ITERATOR_NAME} is not MXNet's", AttributeError)


def install_advice(mxnet: ModuleType) -> None:
    """Make a script that needs the elastic interface print advice and exit with the code FACE_WANTED."""
    mxnet_create = mxnet.kvstore.create

    def create_or_advise(name: Any = "local") -> Any:
        if isinstance(name, str) and "dist" in name.lower():
            _advise_and_raise(f"kvstore {name!r} has no servers in a job", RuntimeError)
        return mxnet_create(name)

    mxnet.kvstore.create = create_or_advise
    mxnet.module.__class__ = type("MxnetModule", (type(mxnet.module),), {ITERATOR_NAME: _MissingName()})
    earlier_hook = sys.excepthook

    def exit_with_advice(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        earlier_hook(kind, error, trace)
        if _StoredAdvice.advice:
            if _StoredAdvice.advice not in str(error):
                sys.stderr.write(f"{_StoredAdvice.advice}\n")
            raise SystemExit(FACE_WANTED)

    sys.excepthook = exit_with_advice
