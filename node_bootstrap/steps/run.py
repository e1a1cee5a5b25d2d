"""State of one run of the bootstrap: its dependencies, and the results that steps pass to later steps."""

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
    """Dependencies, which tests replace. `volume`: path of the mounted shared volume; None: the configured path."""

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
    packages: Sequence[str] = TRAINING  # packages that the node's own programs import
    is_mount: Callable[[str], bool] = os.path.ismount
    timing: Timing = field(default_factory=Timing)
    user: str | None = None  # user of all programs of the job; None: the current user

    @property
    def account(self) -> Account | None:
        """The user of the job's programs. Raises InvalidConfiguration."""
        return account(self.user) if self.user is not None else None


@dataclass(frozen=True)
class Configured:
    """Identity and configuration of a node."""

    identity: Identity
    config: NodeConfig
    parameters: Parameters


@dataclass(frozen=True)
class PrepareResult:
    """Result of prepare-data."""

    prepared: bool
    tries: int  # 0: the marker was valid, or there is nothing to prepare
    reason: str
    # digest of the script that ran last or was prepared before; "" if there is none or it cannot be read
    script: str = field(default="", compare=False)


@dataclass(frozen=True)
class Services:
    """The parts that run on a ready host, and the task group for tasks that start later."""

    parts: Ec2Parts
    tasks: asyncio.TaskGroup


class Run:
    """State of one run of the bootstrap. `log_context`: the fields of each log line."""

    def __init__(
        self, dependencies: Dependencies, attempt: int, children: Children, log_context: dict[str, Any]
    ) -> None:
        self.dependencies, self.attempt, self.children, self.log_context = dependencies, attempt, children, log_context
        self.metadata = MetadataClient(dependencies.metadata_url, dependencies.timing)
        self.identity: Identity | None = None
        self.configuration: Configured | None = None
        self.prepare_result: PrepareResult | None = None
        self.running_services: Services | None = None
        self._gpus: int | None = None

    @property
    def known_identity(self) -> Identity:
        if self.identity is None:
            raise RuntimeError("the node's identity has not been read yet")
        return self.identity

    @property
    def configured(self) -> Configured:
        if self.configuration is None:
            raise RuntimeError("the node's configuration has not been read yet")
        return self.configuration

    @property
    def services(self) -> Services:
        if self.running_services is None:
            raise RuntimeError("the host has not been made ready yet")
        return self.running_services

    async def gpus(self) -> int:
        """Number of GPUs, counted once per run."""
        if self._gpus is None:
            layout, nvidia_smi = self.dependencies.layout, self.dependencies.nvidia_smi
            self._gpus = await count_gpus(layout.gpus, nvidia_smi, self.children, layout.logs / "nvidia-smi.log")
        return self._gpus


class NodeStep(Step):
    """A step of a node. `carried_out` is set in this run by steps that leave no other result to check."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.carried_out = False
