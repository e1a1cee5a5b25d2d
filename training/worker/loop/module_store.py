"""Kvstore for a script that was written for AWS Dynamic Training and trains by `Module.fit`."""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.engine import STORES, kvstore_name
from dyntrain.training.worker.membership.client import read_control_file
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.refused import Refused

from mxnet.kvstore import KVStoreBase  # isort: skip
from mxnet.kvstore.base import create as create_of_mxnet  # mx.kvstore.create may be replaced by `create` below

NOT_ELASTIC_ERROR = "kvstore {name!r} is not elastic: use {stores}, with which all workers make the updates"


class ModuleStore(KVStoreBase):  # type: ignore[misc]  # mxnet has no types
    """The script's kvstore.

    Before `fit`, every worker's kvstore has rank 0 of 1 worker, because a worker becomes a member of the job only when
    its model is known.
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
        """Do nothing, because the workers' parameters are made equal whenever a generation (group of workers) forms."""

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Raise NotImplementedError, because only a Gluon trainer, not a Module, broadcasts."""
        raise NotImplementedError(
            "this kvstore is for Module.fit; a Gluon script trains elastically with job.trainer (training/GUIDE.md)"
        )

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        self.membership.kvstore.pushpull(key, value, out, priority)

    @staticmethod
    def is_capable(capability: str) -> bool:
        return False  # not of the optimizer either: a joiner could not get its state from servers

    def set_gradient_compression(self, compression_params: Any) -> None:
        raise NotImplementedError(
            "gradient compression leaves a residue on each worker that no joiner has: train without it (--gc-type none)"
        )


def create(name: str = "local") -> Any:
    """Replace `mx.kvstore.create`: for dist_sync, dist_device_sync and dist_sync_device, return an elastic kvstore.

    On a worker, raises Refused for all other distributed kvstores of MXNet, which would wait for servers that no
    launcher starts.
    """
    if (elastic_kind := kvstore_name(name)) is not None:
        return ModuleStore(Membership.join(elastic_kind), elastic_kind)
    if "dist" in str(name).lower() and read_control_file() is not None:
        Membership.join(STORES[0])  # so that the coordinator gets the error below
        raise Refused(NOT_ELASTIC_ERROR.format(name=name, stores=" and ".join(STORES)))
    return create_of_mxnet(name)
