"""One sentence, in place of a traceback, that names the extra which brings a missing package."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

TRAINING = ("cryptography", "numpy", "websockets", "xxhash", "mxnet")  # what a script imports beyond the base install
BUILDING = (
    "it is built against the MXNet beside it, with Python 3.11: make horovod in a checkout of dyntrain says how, and "
    "the wheel that it makes goes to every node"
)
_EXTRAS = {
    "node": ("cryptography", "numpy", "websockets", "xxhash"),
    "controller": ("aws_lambda_powertools", "chalice", "yaml"),
    "dashboard": ("sse_starlette", "starlette", "uvicorn"),
    "picture": ("resvg_py",),
    "tensorboard": ("tensorboard",),
    "local": ("flask", "moto", "sklearn", "werkzeug"),
    "cpu": ("mxnet",),
    "horovod": ("horovod",),
}


class ExtraMissing(ImportError):
    """A package is missing; the text is the advice."""


def advice(packages: Sequence[str]) -> str:
    """What to install for packages that cannot be imported; "" if no extra brings them."""
    extras = [extra for extra, provided in _EXTRAS.items() if not {*provided}.isdisjoint(packages)]
    if not extras:
        return ""
    if "local" in extras:  # which includes these three
        extras = [extra for extra in extras if extra not in ("node", "controller", "dashboard")]
    text = f'to have {", ".join(packages)}: pip install "dyntrain[{",".join(extras)}]"'
    if "cpu" in extras:
        text += " (for a GPU leave out cpu and name one CUDA build of MXNet, such as mxnet-cu112==1.9.1)"
    if "horovod" in extras:
        text += f"; {BUILDING}"
    if sys.version_info >= (3, 13) and {"mxnet", "numpy"} & {*packages}:
        text += ", with Python 3.11 or 3.12: MXNet 1.9.1 takes NumPy 1, which has no wheels for later ones"
    return text


def absent(packages: Sequence[str]) -> tuple[str, ...]:
    """The packages that cannot be imported."""
    return tuple(name for name in packages if find_spec(name) is None)


def require(packages: Sequence[str]) -> None:
    """Raise ExtraMissing if a package is missing."""
    if missing := absent(packages):
        raise ExtraMissing(advice(missing), name=missing[0])


@contextmanager
def one_sentence(code: int = 1) -> Iterator[None]:
    """Replace an error about a missing package by the advice on stderr and this exit code."""
    try:
        yield
    except ImportError as error:
        message = str(error) if isinstance(error, ExtraMissing) else advice([(error.name or "").partition(".")[0]])
        if not message:
            raise
        sys.stderr.write(f"Error: {message}\n")
        raise SystemExit(code) from None
