"""State of one run of the node's program: its dependencies, and the results that steps pass to later steps."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dyntrain.controller.contract.messages import NodeConfig
from dyntrain.missing import TRAINING_PACKAGES
from dyntrain.node_bootstrap.core.pacing import Timing
from dyntrain.node_bootstrap.core.plan import Step
from dyntrain.node_bootstrap.host.accounts import UserAccount, look_up_account
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.processes import Children
from dyntrain.node_bootstrap.instance.gpus import count_gpus
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.instance.metadata import MetadataClient
from dyntrain.node_bootstrap.instance.mxnet_build import CUDA_PROBE_SCRIPT
from dyntrain.node_bootstrap.reports.aws import EventBridgeReports, SsmParameters
from dyntrain.node_bootstrap.reports.config import Parameters
from dyntrain.node_bootstrap.reports.report import Reports
from dyntrain.node_bootstrap.supervision.wiring import Ec2Services


@dataclass(frozen=True)
class Dependencies:
    """Services and programs that the node's program uses; tests can replace each of them."""

    layout: Layout
    metadata_url: str
    volume: Path | None = None  # path of the mounted shared volume; None: the configured path
    parameters: Callable[[str], Parameters] = SsmParameters  # makes the client for a region
    reports: Callable[[str], Reports] = EventBridgeReports  # constructor of the client that sends reports in a region
    coordinator: Sequence[str] = (sys.executable, "-m", "dyntrain.training.coordinator")  # its command
    blank: Sequence[str] = (sys.executable, "-m", "dyntrain.training.engine.blank")  # command of ps-lite processes
    systemctl: Sequence[str] = ("systemctl",)
    nvidia_smi: Sequence[str] = ("nvidia-smi",)
    cuda_probe: Sequence[str] = (sys.executable, "-c", CUDA_PROBE_SCRIPT)
    packages: Sequence[str] = TRAINING_PACKAGES  # packages that the node's own programs import
    is_mount: Callable[[str], bool] = os.path.ismount
    timing: Timing = field(default_factory=Timing)
    user: str | None = None  # user of all programs of the job; None: the current user

    @property
    def account(self) -> UserAccount | None:
        """The user that runs the job's programs. Raises InvalidConfiguration if the user does not exist."""
        return look_up_account(self.user) if self.user is not None else None


@dataclass(frozen=True)
class ConfiguredNode:
    """Identity of a node, and its cluster's configuration."""

    identity: Identity
    config: NodeConfig
    parameters: Parameters


@dataclass(frozen=True)
class PrepareResult:
    """Result of the preparation: whether the prepare-data script succeeded."""

    prepared: bool  # whether the node is prepared
    tries: int  # runs of the script; 0: a valid marker existed, or there was nothing to prepare
    reason: str  # why the node is prepared, or why the script failed
    # SHA-256 of the script that ran last or for which a marker exists; "" if no script exists or can be read
    script: str = field(default="", compare=False)


@dataclass(frozen=True)
class RunningServices:
    """The services that run once the host is ready, and the task group in which further services are started."""

    ec2_services: Ec2Services
    tasks: asyncio.TaskGroup


class ProgramRun:
    """State of one run of the node's program. `log_context` contains the fields that are added to every log line."""

    def __init__(
        self, dependencies: Dependencies, attempt: int, children: Children, log_context: dict[str, Any]
    ) -> None:
        self.dependencies, self.attempt, self.children, self.log_context = dependencies, attempt, children, log_context
        self.metadata = MetadataClient(dependencies.metadata_url, dependencies.timing)
        self.identity: Identity | None = None
        self.configuration: ConfiguredNode | None = None
        self.prepare_result: PrepareResult | None = None
        self.running_services: RunningServices | None = None
        self._gpu_count: int | None = None

    @property
    def known_identity(self) -> Identity:
        if self.identity is None:
            raise RuntimeError("the node's identity has not been read yet")
        return self.identity

    @property
    def configured_node(self) -> ConfiguredNode:
        if self.configuration is None:
            raise RuntimeError("the node's configuration has not been read yet")
        return self.configuration

    @property
    def services(self) -> RunningServices:
        if self.running_services is None:
            raise RuntimeError("the host has not been made ready yet")
        return self.running_services

    async def gpu_count(self) -> int:
        """Return the number of GPUs of the host. The GPUs are counted only once in each run of the node's program."""
        if self._gpu_count is None:
            layout, nvidia_smi = self.dependencies.layout, self.dependencies.nvidia_smi
            self._gpu_count = await count_gpus(
                layout.gpu_folder, nvidia_smi, self.children, layout.log_folder / "nvidia-smi.log"
            )
        return self._gpu_count


class NodeStep(Step):
    """A step of the bootstrap; if the step leaves no result to check, it sets `carried_out` when it is done."""

    def __init__(self, run: ProgramRun) -> None:
        self.run = run
        self.carried_out = False
