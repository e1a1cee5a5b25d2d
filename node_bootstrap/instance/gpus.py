"""Number of GPUs of the host, according to its NVIDIA driver; 0 without a driver.

The driver's kernel module has a directory for each GPU below /proc/driver/nvidia/gpus, named by its PCI address. The
directory exists only once the module is loaded, which may happen after the node's start. Without it, `nvidia-smi -L`
loads the module and prints a line for each GPU: https://docs.nvidia.com/deploy/nvidia-smi/index.html . A MIG slice does
not count as a GPU: nvidia-smi prints it indented, and it has no directory.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from dyntrain.node_bootstrap.host.processes import Children, Program, explain

LIST_SECONDS = 60.0  # loading the module of many GPUs can take half a minute
_LINE = re.compile(r"^GPU \d+: ", re.MULTILINE)
log = logging.getLogger(__name__)


def listed_gpus(text: str) -> int:
    """Number of GPUs in the output of `nvidia-smi -L`."""
    return len(_LINE.findall(text))


def _count_directories(parent: Path) -> int | None:
    return sum(1 for entry in parent.iterdir() if entry.is_dir()) if parent.is_dir() else None


async def count_gpus(directory: Path, command: Sequence[str], children: Children, log_path: Path) -> int:
    """Count the GPUs. `directory`: where the driver lists GPUs; `command`: nvidia-smi.

    If nvidia-smi fails or hangs, the result is 0, with a warning. Bounded by LIST_SECONDS.
    """
    if (count := _count_directories(directory)) is not None:
        return count
    if shutil.which(command[0]) is None:
        return 0
    code, child = await children.run("nvidia-smi", Program([*command, "-L"], {}, log_path), LIST_SECONDS)
    if reason := explain(code, LIST_SECONDS):
        log.warning(
            "nvidia-smi does not list the GPUs: the node counts none",
            extra={"reason": reason, "output": child.last_output(lines=5)},
        )
        return 0
    return listed_gpus(child.last_output(lines=1000, limit=100_000))
