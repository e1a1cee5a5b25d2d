"""All options of the embedded cloud (an emulation of AWS). By default, events are repeated, delayed and reordered, and
describe calls lag.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

LOCAL_STAGE = "local"


@dataclass(frozen=True)
class Options:
    """Options of the embedded cloud. All durations are in seconds. With `launch_tags_emit`, tags given at an instance's
    launch emit a tag change event, which AWS does not promise. `namespaces` gives each machine a network namespace of
    its own, which needs root; otherwise machines share the loopback network.

    `machine_command` is the command that machines run if their user data starts node_bootstrap. The cloud appends
    `--root DIR` to `machine_command`, and replaces `machines.volumes.VOLUME_PLACEHOLDER` by the folder of the machine's
    volume. Without `machine_command`, machines run the node's systemd unit from an installed dyntrain
    (`machines.installation`). `bare` is the root file system of bare machines (`machines.bare`), which need
    `namespaces`.
    """

    region: str = "us-east-1"
    stage: str = LOCAL_STAGE  # the name under which the controller's stack is deployed
    seed: int = 1  # of all random delays, duplicates and omissions
    duplicate_fraction: float = 0.05  # of the events that are delivered twice
    duplicate_delay: float = 0.5  # longest delay of an event's second delivery
    delivery_jitter: float = 0.03  # longest delay of an event's delivery
    handler_processes: int = 3  # processes that run Lambda handlers
    handler_timeout: float | None = None  # replaces each Lambda function's own timeout
    retry_delays: tuple[float, ...] = (1.0, 2.0)  # before a failed asynchronous invocation is repeated
    stream_window: float = 0.075  # changes of the table in this time form a batch; one second in AWS
    stream_batch: int = 1000  # most records in one invocation
    stream_lanes: int = 2  # parallel queues of a stream's records
    stream_attempts: int = 3  # invocations for a record that fails each time
    stream_retry_delay: float = 0.2  # before a failed record is delivered again
    schedule_scale: float = 1.0  # multiplies the periods of scheduled rules; 1.0 as in AWS
    boot_delay: float = 0.2  # from an instance's launch to its state running
    describe_lag: float = 0.3  # until describe calls show a new state of an instance
    behind: float = 1.0  # longest lag of describe calls for tags and groups
    hook_scale: float = 1.0  # multiplies the timeouts of lifecycle hooks; 1.0 as in AWS
    relaunch_delay: float = 1.0  # before a group launches again after a first failed launch
    replacement_delay: float = 1.0  # before a group replaces a terminated instance
    launch_tags_emit: bool = False  # whether tags given at launch emit a tag change event
    machines: bool = True  # whether instances run programs
    namespaces: bool = False  # whether each machine has a network namespace of its own
    machine_command: tuple[str, ...] | None = None  # run if the user data starts node_bootstrap
    machine_stop: float = 5.0  # between SIGTERM and SIGKILL at a machine's shutdown
    bare: Path | None = None  # the root file system of bare machines
    handler_environment: dict[str, str] = field(default_factory=dict)  # extra variables of Lambda handlers
