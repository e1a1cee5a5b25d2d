"""How many GPUs the host has, by its NVIDIA driver; 0 without one.

The driver's kernel module keeps a directory for each GPU below /proc/driver/nvidia/gpus, named by its PCI address. It
is there only once the module is loaded, which at boot may be later than us, or happen at first use only. Then
`nvidia-smi -L` is asked, which loads it and prints a line for each:
https://docs.nvidia.com/deploy/nvidia-smi/index.html . A MIG slice, which it prints indented, is no GPU of its own, as
it is none in the directory.
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
    """In what `nvidia-smi -L` printed."""
    return len(_LINE.findall(text))


def _directories(parent: Path) -> int | None:
    return sum(1 for entry in parent.iterdir() if entry.is_dir()) if parent.is_dir() else None


async def count_gpus(directory: Path, command: Sequence[str], children: Children, log_path: Path) -> int:
    """`directory` is the driver's, `command` is nvidia-smi. One that fails or hangs counts as no GPU, with a warning.
    Bounded by LIST_SECONDS.
    """
    if (known := _directories(directory)) is not None:
        return known
    if shutil.which(command[0]) is None:
        return 0
    code, child = await children.run("nvidia-smi", Program([*command, "-L"], {}, log_path), LIST_SECONDS)
    if reason := explain(code, LIST_SECONDS):
        log.warning(
            "nvidia-smi does not list the GPUs: the node counts none",
            extra={"reason": reason, "output": child.last_words(lines=5)},
        )
        return 0
    return listed_gpus(child.last_words(lines=1000, limit=100_000))
