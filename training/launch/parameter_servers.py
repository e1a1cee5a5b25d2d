"""Scripts that start a distributed TensorFlow 1 training: on each host one parameter server and a worker for each GPU,
or one where there are none. The training script is told which it is by the flags of that time's examples: `--ps_hosts`,
`--worker_hosts`, `--job_name`, `--task_index`.

Nothing here is elastic, and nothing ends a parameter server but a signal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from shlex import join, quote

from dyntrain.training.launch.hosts import decoded, lines_of

SERVER_PORT, FIRST_WORKER_PORT = 2222, 2230
MOST_GPUS = 64
HOST = r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}"  # it becomes the name of a file


class TrainerError(ValueError):
    """Says what is wrong with the hosts."""


@dataclass(frozen=True)
class Training:
    """`command` is the training script's, without the flags that tell it its part."""

    hosts: tuple[str, ...]
    gpus: int
    command: tuple[str, ...]
    log_dir: str


def hosts_of(raw: bytes, source: str) -> tuple[str, ...]:
    """Of a workers file, in any form that launchers take (`dyntrain.training.launch.hosts`). Raises TrainerError."""
    try:
        hosts = tuple(dict.fromkeys(line.host for line in lines_of(decoded(raw), source)))
    except ValueError as error:
        raise TrainerError(str(error)) from error
    for host in hosts:
        if not re.fullmatch(HOST, host):
            raise TrainerError(f"{host!r} is no host")
    if not hosts:
        raise TrainerError("the workers file names no host")
    return hosts


def scripts(training: Training, others: Sequence[str] = ()) -> dict[str, str]:
    """For each host what `bash` is to run there. It returns at once; what it started writes to the logs. `others` are
    listed too, and have no part: nodes that have joined since the count was taken.
    """
    idle = {host: f"echo {quote(f'{host} has no part in this training')}\n" for host in others}
    return idle | {host: _script(training, number) for number, host in enumerate(training.hosts)}


def _script(training: Training, number: int) -> str:
    mine = range(number * (training.gpus or 1), (number + 1) * (training.gpus or 1))
    started = [_start(training, "ps", number, "")]
    started += [_start(training, "worker", task, str(gpu) if training.gpus else "") for gpu, task in enumerate(mine)]
    # ssh runs it without a login: the cluster's environment is in the profile
    return "\n".join(["[ ! -r /etc/profile ] || . /etc/profile", f"mkdir -p {quote(training.log_dir)}", *started, ""])


def _start(training: Training, role: str, task: int, gpu: str) -> str:
    """One line of shell. All three streams are redirected, or `ssh` would wait for the process."""
    servers = [f"{host}:{SERVER_PORT}" for host in training.hosts]
    workers = [f"{host}:{FIRST_WORKER_PORT + i}" for host in training.hosts for i in range(training.gpus or 1)]
    part = [f"--ps_hosts={','.join(servers)}", f"--worker_hosts={','.join(workers)}", f"--job_name={role}"]
    command = join([*training.command, *part, f"--task_index={task}"])
    log = quote(f"{training.log_dir}/{role}{task}")
    return f"CUDA_VISIBLE_DEVICES='{gpu}' nohup {command} </dev/null >{log} 2>&1 &"
