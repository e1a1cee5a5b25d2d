"""Paths of the node's files on the host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    """Paths of the node's files below `root`; the shared volume's path is in the node's configuration."""

    root: Path  # directory that prefixes all paths

    @property
    def state_folder(self) -> Path:
        return self.root / "var/lib/dyntrain"

    @property
    def log_folder(self) -> Path:
        return self.root / "var/log/dyntrain"

    @property
    def workers_file(self) -> Path:
        return self.root / "opt/deeplearning/workers"

    @property
    def ssh_config(self) -> Path:
        """Configuration file that `ssh` reads on both machine images of the CloudFormation template.

        That `ssh` reads files in `ssh_config.d` was not tested, but is documented:
        https://manpages.ubuntu.com/manpages/noble/man5/ssh_config.5.html .
        """
        return self.root / "etc/ssh/ssh_config.d/60-dyntrain.conf"

    @property
    def shell_profile(self) -> Path:
        return self.root / "etc/profile.d/deeplearning.sh"

    @property
    def gpu_folder(self) -> Path:
        """Folder in which the NVIDIA driver makes a folder for each GPU."""
        return self.root / "proc/driver/nvidia/gpus"

    @property
    def fstab(self) -> Path:
        return self.root / "etc/fstab"

    @property
    def launch_socket(self) -> Path:
        return self.state_folder / "launch.sock"

    @property
    def launch_script(self) -> Path:
        """Path of the script that launches a job, the same path as in AWS Dynamic Training."""
        return self.root / "opt/dyntrain/launch.py"

    @property
    def cloudwatch_agent(self) -> Path:
        """Path of the CloudWatch agent's control program."""
        return self.root / "opt/aws/amazon-cloudwatch-agent/bin/amazon-cloudwatch-agent-ctl"

    @property
    def cloudwatch_agent_config(self) -> Path:
        """Path of a copy of the log configuration that the CloudWatch agent last accepted."""
        return self.state_folder / "cloudwatch-agent.json"

    @property
    def node_log(self) -> Path:
        return self.log_folder / "node.log"

    @property
    def control_file(self) -> Path:
        return self.state_folder / "control.json"

    @property
    def attempt_file(self) -> Path:
        return self.state_folder / "attempt"

    @property
    def prepare_tries_file(self) -> Path:
        return self.state_folder / "prepare.jsonl"

    @property
    def lock_file(self) -> Path:
        return self.state_folder / "lock"

    def prepare_log(self, attempt: int) -> Path:
        return self.log_folder / f"prepare-{attempt}.log"
