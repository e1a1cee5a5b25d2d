"""The environment variables of scripts and training commands, and the files that set them in people's shells."""

from __future__ import annotations

import shlex
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.messages import NodeConfig
from dyntrain.node_bootstrap.core.plan import DONE, Condition, pending
from dyntrain.node_bootstrap.host.files import write_atomically
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.workers import hosts_with, workers_text
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.job import fetch
from dyntrain.node_bootstrap.steps.discovery import ReadConfiguration
from dyntrain.node_bootstrap.steps.run import NodeStep, Run
from dyntrain.training.protocol.engines import VARIABLE as ENGINE
from dyntrain.training.protocol.launch_desk import VARIABLE

COUNT_VARIABLE = "DEEPLEARNING_WORKERS_COUNT"
CHANNELS = "DYNTRAIN_CHANNELS"  # `dyntrain.training.worker.channel.objects` reads it
TEMPLATE_TAG = "aws:ec2launchtemplate:id"  # EC2 sets this tag on instances that were launched from a template


def variables(identity: Identity, config: NodeConfig, workers: Path, gpus: int) -> dict[str, str]:
    """The documented environment variables. `config.environment` overrides them."""
    return {
        "DEEPLEARNING_WORKERS_PATH": str(workers),
        COUNT_VARIABLE: str(config.workers),
        "DEEPLEARNING_WORKER_GPU_COUNT": str(gpus),
        "EFS_MOUNT": config.mount,
        "AWS_REGION": identity.region,
        "ELASTIC_WORKER_TAG": ElasticTag(config.elastic_suffix).of(identity.cluster),
        "WORKER_LAUNCH_TEMPLATE_ID": config.worker_launch_template or identity.tags.get(TEMPLATE_TAG, ""),
        "TRAINING_CMD": shlex.join(config.training_cmd),
        **({} if config.code is None else {fetch.VARIABLE: config.code}),
        **({} if config.engine == "pslite" else {ENGINE: config.engine}),
        **({} if config.data_location is None else {CHANNELS: config.data_location}),
        **config.environment,
    }


def profile(values: Mapping[str, str]) -> str:
    """Lines that any POSIX shell can source, with quoted values."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(values.items()))


def _lines_for_shells(layout: Layout, config: NodeConfig) -> str:
    """Further lines for people's shells.

    These lines set the number of hosts in the workers file and the socket for launches, and add the node's `python`
    and `dyntrain` to PATH.
    """
    program_folder = shlex.quote(str(Path(sys.executable).parent))
    count = (
        f"export {COUNT_VARIABLE}=$(grep -c . {shlex.quote(str(layout.workers))})\n"
        if COUNT_VARIABLE not in config.environment
        else ""
    )
    return f'{count}export {VARIABLE}={shlex.quote(str(layout.launch_socket))}\nexport PATH="$PATH":{program_folder}\n'


def _launch_script(layout: Layout) -> str:
    """A script that starts the cluster's launcher, with any Python and from any directory."""
    command = [sys.executable, "-P", "-m", "dyntrain.training.launch"]
    return (
        f"#!{sys.executable}\n"
        '"""Launches a job on the nodes of this cluster; the same as `dyntrain launch`."""\n\n'
        "import os\nimport sys\n\n"
        f"os.environ.setdefault({VARIABLE!r}, {str(layout.launch_socket)!r})\n"
        f"os.execv({sys.executable!r}, {command!r} + sys.argv[1:])\n"
    )


@dataclass(frozen=True)
class HostFile:
    """Content, mode and group of a file."""

    text: str
    mode: int
    group: int = -1  # -1: the group of this process


def environment_files(
    layout: Layout, identity: Identity, config: NodeConfig, gpus: int, group: int = -1
) -> dict[Path, HostFile]:
    """Expected content of the profile, the workers file and the launch script. Raises OSError.

    Only `group` may read the profile: people put tokens into `config.environment`.
    """
    hosts = hosts_with(_content(layout.workers) or "", identity.private_ip)
    return {
        layout.workers: HostFile(workers_text(hosts), 0o644),
        layout.profile: HostFile(
            profile(variables(identity, config, layout.workers, gpus)) + _lines_for_shells(layout, config), 0o640, group
        ),
        layout.launch_script: HostFile(_launch_script(layout), 0o755),
    }


def environment_is_current(files: Mapping[Path, HostFile]) -> bool:
    """Whether the files have the expected content. Raises OSError."""
    return all(_is_current(path, file) for path, file in files.items())


def write_environment(files: Mapping[Path, HostFile]) -> None:
    """Write the files. Raises OSError."""
    for path, file in files.items():
        write_atomically(path, file.text, file.mode, (-1, file.group))


class WriteEnvironment(NodeStep):
    name, needs, host = "environment", (ReadConfiguration,), True

    async def check(self) -> Condition:
        if environment_is_current(await self._files()):
            return DONE
        return pending("the profile, the workers file or the launch script is missing or outdated")

    async def apply(self) -> None:
        write_environment(await self._files())

    async def _files(self) -> dict[Path, HostFile]:
        configured, dependencies = self.run.configured, self.run.dependencies
        group = dependencies.account.gid if dependencies.account else -1
        return environment_files(
            dependencies.layout, configured.identity, configured.config, await self.run.gpus(), group
        )


async def process_environment(run: Run) -> dict[str, str]:
    """Environment of all processes of the node: the variables of people's shells, and the region for AWS clients."""
    configured = run.configured
    values = variables(configured.identity, configured.config, run.dependencies.layout.workers, await run.gpus())
    return values | {"AWS_DEFAULT_REGION": configured.identity.region}


def _is_current(path: Path, file: HostFile) -> bool:
    if _content(path) != file.text:
        return False
    status = path.stat()
    return stat.S_IMODE(status.st_mode) == file.mode and file.group in (-1, status.st_gid)


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
