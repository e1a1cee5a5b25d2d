"""What one life of the bootstrap works with, and what its steps have found out for those after them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dyntrain.controller.contract.messages import NodeConfig
from dyntrain.missing import TRAINING
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.core.plan import Step
from dyntrain.node_bootstrap.host.accounts import Account, account
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.processes import Children
from dyntrain.node_bootstrap.instance.gpus import count_gpus
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.instance.metadata import MetadataClient
from dyntrain.node_bootstrap.instance.mxnet_build import CUDA_PROBE
from dyntrain.node_bootstrap.reports.aws import EventBridgeReports, SsmParameters
from dyntrain.node_bootstrap.reports.config import Parameters
from dyntrain.node_bootstrap.reports.report import Reports
from dyntrain.node_bootstrap.supervision.wiring import Ec2Parts


@dataclass(frozen=True)
class Dependencies:
    """To be replaced piece by piece in tests. `volume`: where the shared volume is mounted already, if not where the
    configuration says.
    """

    layout: Layout
    metadata_url: str
    volume: Path | None = None
    parameters: Callable[[str], Parameters] = SsmParameters  # called with the region
    reports: Callable[[str], Reports] = EventBridgeReports
    coordinator: Sequence[str] = (sys.executable, "-m", "dyntrain.training.coordinator")
    blank: Sequence[str] = (sys.executable, "-m", "dyntrain.training.engine.blank")
    systemctl: Sequence[str] = ("systemctl",)
    nvidia_smi: Sequence[str] = ("nvidia-smi",)
    cuda_probe: Sequence[str] = (sys.executable, "-c", CUDA_PROBE)
    packages: Sequence[str] = TRAINING  # what the node's own programs import
    is_mount: Callable[[str], bool] = os.path.ismount
    timing: Timing = field(default_factory=Timing)
    user: str | None = None  # who runs all that a node runs for its job; None: as this process

    @property
    def account(self) -> Account | None:
        """Raises InvalidConfiguration."""
        return account(self.user) if self.user is not None else None


@dataclass(frozen=True)
class Configured:
    """What a node knows once it has its configuration."""

    identity: Identity
    config: NodeConfig
    parameters: Parameters


@dataclass(frozen=True)
class PrepareResult:
    prepared: bool
    tries: int  # 0: a marker of this instance and script was there, or there is nothing to prepare
    reason: str
    # digest of what ran last, or was found prepared; "" where there is none, or none could be read
    script: str = field(default="", compare=False)


@dataclass(frozen=True)
class Services:
    """What runs on a host that is ready, and the group that whatever else is started belongs to."""

    parts: Ec2Parts
    tasks: asyncio.TaskGroup


class Run:
    """`log_context` is filled with what each log line should carry."""

    def __init__(
        self, dependencies: Dependencies, attempt: int, children: Children, log_context: dict[str, Any]
    ) -> None:
        self.dependencies, self.attempt, self.children, self.log_context = dependencies, attempt, children, log_context
        self.metadata = MetadataClient(dependencies.metadata_url, dependencies.timing)
        self.identity: Identity | None = None
        self.configuration: Configured | None = None
        self.prepare_result: PrepareResult | None = None
        self.started: Services | None = None
        self._gpus: int | None = None

    @property
    def known_identity(self) -> Identity:
        if self.identity is None:
            raise RuntimeError("the node's identity is read before anything that needs it")
        return self.identity

    @property
    def configured(self) -> Configured:
        if self.configuration is None:
            raise RuntimeError("the configuration is read before anything that needs it")
        return self.configuration

    @property
    def services(self) -> Services:
        if self.started is None:
            raise RuntimeError("the host is made ready before anything is done for the job")
        return self.started

    async def gpus(self) -> int:
        """Counted once in a life."""
        if self._gpus is None:
            layout, nvidia_smi = self.dependencies.layout, self.dependencies.nvidia_smi
            self._gpus = await count_gpus(layout.gpus, nvidia_smi, self.children, layout.logs / "nvidia-smi.log")
        return self._gpus


class NodeStep(Step):
    """`carried_out`: in this life, for a step that leaves nothing else to be seen."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.carried_out = False
