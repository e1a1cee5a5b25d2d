"""Saves a training script's model files, so that each file is complete and written by only one worker of the job.

Every worker runs the script's line that saves a model, with the same file name. A file is written under a temporary
name in the same folder, synced and renamed, so the file exists whole or not at all. A killed process may leave a
partial file, whose name begins with a dot.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.host.durable import sync

import mxnet as mx  # isort: skip

Callback = Callable[..., None]
log = logging.getLogger(__name__)


class WriterRole:
    """Says whether this process saves the script's files. A process without an elastic job always saves its files."""

    def __init__(self) -> None:
        self.chosen = True


WRITER = WriterRole()  # of this process, which has one job


@contextlib.contextmanager
def whole_file(name: str) -> Iterator[str]:
    """Yield a temporary file name to write to. At the end of the context, the file is renamed to `name`.

    For a URL ("s3://..."), yields `name` itself: MXNet creates the object once all its data is written.
    """
    if "://" in name:
        yield name
        return
    path = Path(name)
    partial_path = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        yield str(partial_path)
        sync(partial_path)
        partial_path.rename(path)
        sync(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            partial_path.unlink()
        raise


def save_checkpoint(
    prefix: str, epoch: int, symbol: Any, arg_params: Any, aux_params: Any, remove_amp_cast: bool = True
) -> None:
    """Replace `mx.model.save_checkpoint`.

    The network's file is saved first, so a file with parameters exists only if the network's file exists.
    """
    if not WRITER.chosen:
        return
    if symbol is not None:
        with whole_file(f"{prefix}-symbol.json") as partial_path:
            symbol.save(partial_path, remove_amp_cast=remove_amp_cast)
    params_by_kind = {"arg": arg_params, "aux": aux_params}
    host_arrays = {
        f"{kind}:{name}": value.as_in_context(mx.cpu())
        for kind, params in params_by_kind.items()
        for name, value in params.items()
    }
    params_path = f"{prefix}-{epoch:04d}.params"
    with whole_file(params_path) as partial_path:
        mx.nd.save(partial_path, host_arrays)
    log.info('Saved checkpoint to "%s"', params_path)


def do_checkpoint(prefix: str, period: int = 1) -> Callback:
    """Replace `mx.callback.do_checkpoint`."""

    def save_at_period(epoch: int, symbol: Any = None, arg: Any = None, aux: Any = None) -> None:
        if (epoch + 1) % max(1, int(period)) == 0:
            save_checkpoint(prefix, epoch + 1, symbol, arg, aux)

    return save_at_period


def module_checkpoint(module: Any, prefix: str, period: int = 1, save_optimizer_states: bool = False) -> Callback:
    """Replace `mx.callback.module_checkpoint`."""

    def save(epoch: int, symbol: Any = None, arg: Any = None, aux: Any = None) -> None:
        if (epoch + 1) % max(1, int(period)) == 0:
            module.save_checkpoint(prefix, epoch + 1, save_optimizer_states)

    return save
