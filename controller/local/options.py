"""All options of the embedded cloud. The defaults are pessimistic: duplicates, disorder and lag are on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

LOCAL_STAGE = "local"


@dataclass(frozen=True)
class Options:
    """Options of the embedded cloud. All durations are in seconds.

    `schedule_scale` multiplies the period of every scheduled rule, and `hook_scale` every lifecycle hook's timeout: 1.0
    is AWS's pace. Describe calls show a state change `describe_lag` after its event, and a change of tags or groups up
    to `behind` later. With `launch_tags_emit`, tags given at launch emit a tag change event, which AWS does not
    promise. `namespaces` gives each machine a network namespace of its own, which needs root; otherwise machines share
    the loopback. `handler_timeout` replaces each function's own timeout. `stream_window` is the time in which a batch
    of changes is collected; the deployed value is one second.

    `machine_command` is the command of machines whose user data asks for node_bootstrap. The cloud appends `--root
    DIR`, and replaces `machines.volumes.VOLUME` by the folder of the machine's volume. Without `machine_command`,
    machines run the node's systemd unit from an installed dyntrain (`machines.installation`). `bare` is the root of
    bare machines (`machines.bare`), which need `namespaces`.
    """

    region: str = "us-east-1"
    stage: str = LOCAL_STAGE
    seed: int = 1
    duplicate_fraction: float = 0.05
    duplicate_delay: float = 0.5
    delivery_jitter: float = 0.03
    handler_processes: int = 3
    handler_timeout: float | None = None
    retry_delays: tuple[float, ...] = (1.0, 2.0)
    stream_window: float = 0.075
    stream_batch: int = 1000
    stream_lanes: int = 2
    stream_attempts: int = 3
    stream_retry_delay: float = 0.2
    schedule_scale: float = 1.0
    boot_delay: float = 0.2
    describe_lag: float = 0.3
    behind: float = 1.0
    hook_scale: float = 1.0
    relaunch_delay: float = 1.0
    replacement_delay: float = 1.0
    launch_tags_emit: bool = False
    machines: bool = True
    namespaces: bool = False
    machine_command: tuple[str, ...] | None = None
    machine_stop: float = 5.0
    bare: Path | None = None
    handler_environment: dict[str, str] = field(default_factory=dict)
