"""What a life of the bootstrap depends on, to be replaced piece by piece in tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from node_bootstrap.config import SsmParameters
from node_bootstrap.layout import Layout
from node_bootstrap.pacing import Timing
from node_bootstrap.ports import Parameters, Reports
from node_bootstrap.report import EventBridgeReports


@dataclass(frozen=True)
class Setting:
    layout: Layout
    metadata_url: str
    parameters: Callable[[str], Parameters] = SsmParameters  # called with the region
    reports: Callable[[str], Reports] = EventBridgeReports
    coordinator: Sequence[str] = (sys.executable, "-m", "training.coordinator")
    blank: Sequence[str] = (sys.executable, "-m", "training.engine.blank")
    systemctl: Sequence[str] = ("systemctl",)
    nvidia_smi: Sequence[str] = ("nvidia-smi",)
    packages: Sequence[str] = ("training", "mxnet")  # what the node's own programs import
    is_mount: Callable[[str], bool] = os.path.ismount
    timing: Timing = field(default_factory=Timing)
