"""Generates shell scripts that start a distributed training with TensorFlow 1.

On each host a script starts one parameter server, and one worker for each GPU (without GPUs one worker). The training
script learns its role by flags, as in the examples of TensorFlow 1: `--ps_hosts`, `--worker_hosts`, `--job_name`,
`--task_index`.

The number of workers is fixed. A parameter server runs until a signal stops it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from shlex import join, quote

from dyntrain.training.launch.hosts import decode_text, lines_of

SERVER_PORT, FIRST_WORKER_PORT = 2222, 2230  # of the parameter server, and of a host's first worker
MOST_GPUS = 64  # on one host
HOST_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"  # also the name of a file


class TrainerError(ValueError):
    """The hosts of a training are invalid, for the reason in the message."""


@dataclass(frozen=True)
class Training:
    """A distributed training with TensorFlow 1.

    `command` starts the training script, and does not contain the flags for the script's role.
    """

    hosts: tuple[str, ...]  # names of the hosts
    gpus: int  # number of GPUs on each host
    command: tuple[str, ...]  # of the training script, without the flags of its role
    log_dir: str  # folder for the processes' logs


def hosts_of(raw: bytes, source: str) -> tuple[str, ...]:
    """Parse a file with the workers' hosts, in any format of `dyntrain.training.launch.hosts`. Raises TrainerError."""
    try:
        hosts = tuple(dict.fromkeys(line.host for line in lines_of(decode_text(raw), source)))
    except ValueError as error:
        raise TrainerError(str(error)) from error
    for host in hosts:
        if not re.fullmatch(HOST_PATTERN, host):
            raise TrainerError(f"{host!r} is no host")
    if not hosts:
        raise TrainerError("the workers file names no host")
    return hosts


def host_scripts(training: Training, idle_hosts: Sequence[str] = ()) -> dict[str, str]:
    """Return for each host a `bash` script, which starts the host's processes in the background.

    `idle_hosts` are nodes that are not among the training's hosts. The script for an idle host only prints a line.
    """
    idle_scripts = {host: f"echo {quote(f'{host} has no part in this training')}\n" for host in idle_hosts}
    return idle_scripts | {host: _host_script(training, host_number) for host_number, host in enumerate(training.hosts)}


def _host_script(training: Training, host_number: int) -> str:
    task_indices = range(host_number * (training.gpus or 1), (host_number + 1) * (training.gpus or 1))
    commands = [_start_command(training, "ps", host_number, "")]
    commands += [
        _start_command(training, "worker", task_index, str(gpu_number) if training.gpus else "")
        for gpu_number, task_index in enumerate(task_indices)
    ]
    # ssh starts no login shell, so read the profile with the cluster's environment
    return "\n".join(["[ ! -r /etc/profile ] || . /etc/profile", f"mkdir -p {quote(training.log_dir)}", *commands, ""])


def _start_command(training: Training, role: str, task_index: int, gpu: str) -> str:
    """Return a shell command that starts one process of the training.

    The process's input and output are redirected, since `ssh` would otherwise wait for the process to end.
    """
    server_addresses = [f"{host}:{SERVER_PORT}" for host in training.hosts]
    worker_addresses = [
        f"{host}:{FIRST_WORKER_PORT + gpu_number}"
        for host in training.hosts
        for gpu_number in range(training.gpus or 1)
    ]
    role_flags = [
        f"--ps_hosts={','.join(server_addresses)}",
        f"--worker_hosts={','.join(worker_addresses)}",
        f"--job_name={role}",
    ]
    command = join([*training.command, *role_flags, f"--task_index={task_index}"])
    log_path = quote(f"{training.log_dir}/{role}{task_index}")
    return f"CUDA_VISIBLE_DEVICES='{gpu}' nohup {command} </dev/null >{log_path} 2>&1 &"
