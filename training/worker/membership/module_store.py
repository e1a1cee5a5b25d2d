"""The kvstore of a script for AWS Dynamic Training."""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.worker.membership.membership import Membership

from mxnet.kvstore import KVStoreBase  # isort: skip
from mxnet.kvstore.base import create as create_of_mxnet  # mx.kvstore.create may be the one below

ELASTIC = ("dist_sync", "dist_device_sync")


class ModuleStore(KVStoreBase):  # type: ignore[misc]  # mxnet has no types
    """The script's `kv`. Before `fit` it is worker 0 of 1, on every worker alike: the membership is not known until the
    model is.
    """

    type = ""  # the kind that the script asked for; MXNet looks for "dist" and "_sync" in it

    def __init__(self, membership: Membership, kind: str) -> None:
        self.membership, self.type = membership, kind

    @property
    def rank(self) -> int:
        return self.membership.kvstore.rank

    @property
    def num_workers(self) -> int:
        return self.membership.kvstore.num_workers

    def init(self, key: Any, value: Any) -> None:
        """Nothing to do: the workers' parameters are made equal when a generation forms."""

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """A Gluon Trainer begins with it, Module never asks for it."""
        raise NotImplementedError(
            "this kvstore is for Module.fit; a Gluon script trains elastically with job.trainer (training/GUIDE.md)"
        )

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        self.membership.kvstore.pushpull(key, value, out, priority)

    @staticmethod
    def is_capable(capability: str) -> bool:
        return False  # above all not of the optimizer: its state on servers could reach no joiner

    def set_gradient_compression(self, compression_params: Any) -> None:
        raise NotImplementedError(
            "gradient compression leaves a residue on each worker that no joiner has: train without it (--gc-type none)"
        )


def is_elastic(name: str) -> bool:
    return name in ELASTIC


def create(name: str = "local") -> Any:
    """`mx.kvstore.create`, elastic for dist_sync and dist_device_sync."""
    return ModuleStore(Membership.join(name), name) if is_elastic(name) else create_of_mxnet(name)
