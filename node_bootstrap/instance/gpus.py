"""Counts the GPUs that the host's NVIDIA driver lists; without a driver the number is 0.

The driver's kernel module makes a directory for each GPU below /proc/driver/nvidia/gpus. The directories of the GPUs
exist only after the kernel module was loaded, which may happen after the node's start. If the directories of the GPUs
do not exist, `nvidia-smi -L` loads the kernel module and prints a line for each GPU:
https://docs.nvidia.com/deploy/nvidia-smi/index.html . A MIG slice (part of a GPU) is not counted: nvidia-smi indents
its line, and the driver makes no directory for it.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from dyntrain.node_bootstrap.host.processes import Children, Program, explain_exit

NVIDIA_SMI_SECONDS = 60.0  # loading the module of many GPUs can take half a minute
_GPU_LINE = re.compile(r"^GPU \d+: ", re.MULTILINE)
log = logging.getLogger(__name__)


def count_listed_gpus(text: str) -> int:
    """Count the GPUs in `text`, the output of `nvidia-smi -L`."""
    return len(_GPU_LINE.findall(text))


def _count_directories_if_any(parent: Path) -> int | None:
    return sum(1 for gpu_directory in parent.iterdir() if gpu_directory.is_dir()) if parent.is_dir() else None


async def count_gpus(directory: Path, command: Sequence[str], children: Children, log_path: Path) -> int:
    """Count the GPUs of the host.

    The driver makes a directory for each GPU in `directory`, and `command` runs nvidia-smi. If nvidia-smi fails or
    hangs, a warning is logged, and the result is 0. Takes at most NVIDIA_SMI_SECONDS.
    """
    if (gpu_count := _count_directories_if_any(directory)) is not None:
        return gpu_count
    if shutil.which(command[0]) is None:
        return 0
    exit_code, child = await children.run("nvidia-smi", Program([*command, "-L"], {}, log_path), NVIDIA_SMI_SECONDS)
    if failure_reason := explain_exit(exit_code, NVIDIA_SMI_SECONDS):
        log.warning(
            "nvidia-smi does not list the GPUs: the node counts none",
            extra={"reason": failure_reason, "output": child.last_output(lines=5)},
        )
        return 0
    return count_listed_gpus(child.last_output(lines=1000, limit=100_000))
