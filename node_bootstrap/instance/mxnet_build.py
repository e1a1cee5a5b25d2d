"""Which build of MXNet is installed: on GPUs, one for the processor alone would train far too slowly, or fail at the
first `mx.gpu()`.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

from dyntrain.node_bootstrap.host.errors import InvalidConfiguration, ProgramFailed
from dyntrain.node_bootstrap.host.processes import Children, Program, explain

NO_CUDA = 3
PASSING = (None, -signal.SIGKILL, 126, 127)  # a slow disk, no memory, a program that could not be started
CUDA_PROBE = f"""
import sys
import dyntrain.training.numpy_aliases, mxnet
sys.exit(0 if mxnet.runtime.Features().is_enabled("CUDA") else {NO_CUDA})
"""
IMPORT_SECONDS = 300.0  # CUDA's libraries come from a disk that may be cold
_BUILD = re.compile(r"mxnet(-(cu[0-9]+(mkl)?|mkl|native))?", re.IGNORECASE)


def builds(distributions: Iterable[str]) -> list[str]:
    """Of MXNet, among the names of installed distributions. Two are one too many: they have the same files."""
    return sorted({name.lower() for name in distributions if _BUILD.fullmatch(name)})


async def check_cuda(gpus: int, probe: Sequence[str], children: Children, log_path: Path) -> None:
    """Raises InvalidConfiguration when MXNet cannot use the host's GPUs, ProgramFailed when that could not be seen."""
    try:
        code, child = await children.run("mxnet", Program(probe, {}, log_path), IMPORT_SECONDS)
    except OSError as error:
        raise ProgramFailed(f"the look whether MXNet can use the GPUs could not be started: {error}") from error
    if code == NO_CUDA:
        raise InvalidConfiguration(
            f"the node has {gpus} GPUs, and its MXNet has no CUDA: install the build for GPUs, which the template does "
            "with Accelerator=Nvidia, or take an instance type without GPUs"
        )
    if code != 0:
        said = f"MXNet cannot be imported: {explain(code, IMPORT_SECONDS)}: {child.last_words(lines=5)}"
        raise ProgramFailed(said) if code in PASSING else InvalidConfiguration(said)
