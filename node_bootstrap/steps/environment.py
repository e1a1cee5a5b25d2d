"""The environment variables of scripts and training commands, and the files that set them in users' shells."""

from __future__ import annotations

import shlex
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dyntrain.controller.contract.elastic_tag import ElasticTag
from dyntrain.controller.contract.messages import NodeConfig
from dyntrain.node_bootstrap.core.plan import DONE, StepCondition, pending
from dyntrain.node_bootstrap.host.files import write_atomically
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.workers import hosts_with, workers_text
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.job import fetch
from dyntrain.node_bootstrap.steps.discovery import ReadConfiguration
from dyntrain.node_bootstrap.steps.run import NodeStep, ProgramRun
from dyntrain.training.protocol.engines import VARIABLE as ENGINE
from dyntrain.training.protocol.launch_desk import VARIABLE

COUNT_VARIABLE = "DEEPLEARNING_WORKERS_COUNT"
CHANNELS_VARIABLE = "DYNTRAIN_CHANNELS"  # `dyntrain.training.worker.channel.objects` reads it
TEMPLATE_TAG = "aws:ec2launchtemplate:id"  # EC2 sets this tag on instances that were launched from a template


def documented_variables(identity: Identity, config: NodeConfig, workers: Path, gpus: int) -> dict[str, str]:
    """Return the documented environment variables of a node. `config.environment` overrides them."""
    return {
        "DEEPLEARNING_WORKERS_PATH": str(workers),
        COUNT_VARIABLE: str(config.workers),
        "DEEPLEARNING_WORKER_GPU_COUNT": str(gpus),
        "EFS_MOUNT": config.mount,
        "AWS_REGION": identity.region,
        "ELASTIC_WORKER_TAG": ElasticTag(config.elastic_suffix).of(identity.cluster),
        "WORKER_LAUNCH_TEMPLATE_ID": config.worker_launch_template or identity.tags.get(TEMPLATE_TAG, ""),
        "TRAINING_CMD": shlex.join(config.training_cmd),
        **({} if config.code is None else {fetch.CODE_VARIABLE: config.code}),
        **({} if config.engine == "pslite" else {ENGINE: config.engine}),
        **({} if config.data_location is None else {CHANNELS_VARIABLE: config.data_location}),
        **config.environment,
    }


def profile_text(values: Mapping[str, str]) -> str:
    """Return the text of a shell profile that exports the variables, with values quoted for any POSIX shell."""
    return "".join(f"export {variable}={shlex.quote(value)}\n" for variable, value in sorted(values.items()))


def _profile_lines_for_people(layout: Layout, config: NodeConfig) -> str:
    """Return the lines of the shell profile that only users who log in need.

    The lines of the profile set the variables with the number of hosts and with the path of the socket for launches.
    The lines of the profile also add the folder of `python` and `dyntrain` to PATH.
    """
    program_folder = shlex.quote(str(Path(sys.executable).parent))
    worker_count_line = (
        f"export {COUNT_VARIABLE}=$(grep -c . {shlex.quote(str(layout.workers_file))})\n"
        if COUNT_VARIABLE not in config.environment
        else ""
    )
    launch_socket = shlex.quote(str(layout.launch_socket))
    return f'{worker_count_line}export {VARIABLE}={launch_socket}\nexport PATH="$PATH":{program_folder}\n'


def _launch_script_text(layout: Layout) -> str:
    """Return the text of the script that launches jobs; any Python can run the script, from any directory."""
    launch_command = [sys.executable, "-P", "-m", "dyntrain.training.launch"]
    return (
        f"#!{sys.executable}\n"
        '"""Launches a job on the nodes of this cluster; the same as `dyntrain launch`."""\n\n'
        "import os\nimport sys\n\n"
        f"os.environ.setdefault({VARIABLE!r}, {str(layout.launch_socket)!r})\n"
        f"os.execv({sys.executable!r}, {launch_command!r} + sys.argv[1:])\n"
    )


@dataclass(frozen=True)
class HostFile:
    """Expected content, mode and group of a file on the host."""

    text: str  # content of the file
    mode: int  # permissions, such as 0o644
    group: int = -1  # group id; -1: the group of this process


def environment_files(
    layout: Layout, identity: Identity, config: NodeConfig, gpus: int, group: int = -1
) -> dict[Path, HostFile]:
    """Return the expected content, mode and group of shell profile, workers file and launch script, by path.

    Raises OSError. Only the owner and `group` may read the profile, since users may put tokens into
    `config.environment`.
    """
    hosts = hosts_with(_read_if_exists(layout.workers_file) or "", identity.private_ip)
    return {
        layout.workers_file: HostFile(workers_text(hosts), 0o644),
        layout.shell_profile: HostFile(
            profile_text(documented_variables(identity, config, layout.workers_file, gpus))
            + _profile_lines_for_people(layout, config),
            0o640,
            group,
        ),
        layout.launch_script: HostFile(_launch_script_text(layout), 0o755),
    }


def environment_is_current(files: Mapping[Path, HostFile]) -> bool:
    """Whether the files on the host have the expected content, mode and group. Raises OSError."""
    return all(_is_current(path, file) for path, file in files.items())


def write_environment(files: Mapping[Path, HostFile]) -> None:
    """Write each of `files` to its path, with the expected content, mode and group. Raises OSError."""
    for path, file in files.items():
        write_atomically(path, file.text, file.mode, (-1, file.group))


class WriteEnvironment(NodeStep):
    step_name, needed_steps, prepares_host = "environment", (ReadConfiguration,), True

    async def check(self) -> StepCondition:
        if environment_is_current(await self._expected_files()):
            return DONE
        return pending("the profile, the workers file or the launch script is missing or outdated")

    async def carry_out_step(self) -> None:
        write_environment(await self._expected_files())

    async def _expected_files(self) -> dict[Path, HostFile]:
        configured_node, dependencies = self.run.configured_node, self.run.dependencies
        group_id = dependencies.account.gid if dependencies.account else -1
        return environment_files(
            dependencies.layout, configured_node.identity, configured_node.config, await self.run.gpu_count(), group_id
        )


async def process_environment(run: ProgramRun) -> dict[str, str]:
    """Return the environment of the node's processes: the documented variables, and the region for AWS clients."""
    configured_node = run.configured_node
    node_variables = documented_variables(
        configured_node.identity, configured_node.config, run.dependencies.layout.workers_file, await run.gpu_count()
    )
    return node_variables | {"AWS_DEFAULT_REGION": configured_node.identity.region}


def _is_current(path: Path, file: HostFile) -> bool:
    if _read_if_exists(path) != file.text:
        return False
    file_status = path.stat()
    return stat.S_IMODE(file_status.st_mode) == file.mode and file.group in (-1, file_status.st_gid)


def _read_if_exists(path: Path) -> str | None:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else None
