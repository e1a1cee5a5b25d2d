"""Paths on the host, below one root."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """Paths of the node. `root` prefixes them all, but not the shared volume, whose path is in the node's
    configuration.
    """

    root: Path

    @property
    def state(self) -> Path:
        return self.root / "var/lib/dyntrain"

    @property
    def logs(self) -> Path:
        return self.root / "var/log/dyntrain"

    @property
    def workers(self) -> Path:
        return self.root / "opt/deeplearning/workers"

    @property
    def ssh_config(self) -> Path:
        """Configuration file that `ssh` reads on both images of the template.

        Believed, from https://manpages.ubuntu.com/manpages/noble/man5/ssh_config.5.html .
        """
        return self.root / "etc/ssh/ssh_config.d/60-dyntrain.conf"

    @property
    def profile(self) -> Path:
        return self.root / "etc/profile.d/deeplearning.sh"

    @property
    def gpus(self) -> Path:
        """Folder in which the NVIDIA driver makes a directory for each GPU."""
        return self.root / "proc/driver/nvidia/gpus"

    @property
    def fstab(self) -> Path:
        return self.root / "etc/fstab"

    @property
    def launch_socket(self) -> Path:
        return self.state / "launch.sock"

    @property
    def launch_script(self) -> Path:
        """Path where users of AWS Dynamic Training expect the launcher."""
        return self.root / "opt/dyntrain/launch.py"

    @property
    def agent(self) -> Path:
        """The CloudWatch agent's control program."""
        return self.root / "opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl"

    @property
    def agent_config(self) -> Path:
        """Copy of the log configuration that the CloudWatch agent last accepted."""
        return self.state / "cloudwatch-agent.json"

    @property
    def node_log(self) -> Path:
        return self.logs / "node.log"

    @property
    def control_file(self) -> Path:
        return self.state / "control.json"

    @property
    def attempt(self) -> Path:
        return self.state / "attempt"

    @property
    def tries(self) -> Path:
        return self.state / "prepare.jsonl"

    @property
    def lock(self) -> Path:
        return self.state / "lock"

    def prepare_log(self, attempt: int) -> Path:
        return self.logs / f"prepare-{attempt}.log"
