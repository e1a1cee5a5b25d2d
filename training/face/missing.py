"""Reports a missing package by one sentence with the extra of dyntrain to install, instead of a traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec

TRAINING_PACKAGES = (
    "cryptography",
    "numpy",
    "websockets",
    "xxhash",
    "mxnet",
)  # packages that a training script needs beyond the base install
HOROVOD_ADVICE = (
    "Horovod is built against the installed MXNet, with Python 3.11: run make horovod in a checkout of dyntrain, and "
    "install the wheel on every node"
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
    """A package that dyntrain needs is not installed. The message says what to install."""


def advice(packages: Sequence[str]) -> str:
    """Return advice on how to install the missing `packages`, or "" if no extra of dyntrain contains any of them."""
    extras = [extra for extra, extra_packages in _EXTRAS.items() if not {*extra_packages}.isdisjoint(packages)]
    if not extras:
        return ""
    if "local" in extras:  # the extra `local` includes these three
        extras = [extra for extra in extras if extra not in ("node", "controller", "dashboard")]
    advice_text = f'to install {", ".join(packages)}: pip install "dyntrain[{",".join(extras)}]"'
    if "cpu" in extras:
        advice_text += " (for a GPU, replace cpu by one CUDA build of MXNet, such as mxnet-cu112==1.9.1)"
    if "horovod" in extras:
        advice_text += f"; {HOROVOD_ADVICE}"
    if sys.version_info >= (3, 13) and {"mxnet", "numpy"} & {*packages}:
        advice_text += ", with Python 3.11 or 3.12: MXNet 1.9.1 needs NumPy 1, which has no wheels for later versions"
    return advice_text


def find_absent(packages: Sequence[str]) -> tuple[str, ...]:
    """Return the names in `packages` that cannot be imported."""
    return tuple(name for name in packages if find_spec(name) is None)


def require(packages: Sequence[str]) -> None:
    """Raise ExtraMissing if one of `packages` cannot be imported."""
    if absent_packages := find_absent(packages):
        raise ExtraMissing(advice(absent_packages), name=absent_packages[0])


@contextmanager
def exit_with_advice(code: int = 1) -> Iterator[None]:
    """If an import in the context fails for a missing package, print advice on stderr and exit with `code`."""
    try:
        yield
    except ImportError as error:
        advice_text = str(error) if isinstance(error, ExtraMissing) else advice([(error.name or "").partition(".")[0]])
        if not advice_text:
            raise
        sys.stderr.write(f"Error: {advice_text}\n")
        raise SystemExit(code) from None
