"""Check whether the installed build of MXNet computes on the GPUs.

A build for CPUs would train far too slowly. A build without code for the chip imports and counts the GPUs, and fails at
the job's first step.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from importlib.metadata import distributions
from pathlib import Path

from dyntrain.controller.contract.gpu_families import BUILD_CAPABILITIES, GPU_BUILD, usable_families
from dyntrain.node_bootstrap.host.errors import TRY_AGAIN, InvalidConfiguration, ProgramFailed
from dyntrain.node_bootstrap.host.processes import Children, Program, explain
from dyntrain.node_bootstrap.instance.gpus import LIST_SECONDS

NO_CUDA, NO_KERNEL = 3, 4
TEMPORARY_FAILURES = (
    None,
    -signal.SIGKILL,
    TRY_AGAIN,
    126,
    127,
)  # exit codes after a slow disk, without memory, or of a program that could not start
# MXNet computes asynchronously: an error of a kernel is raised only when we wait for its result. os._exit skips CUDA's
# clean-up. A GPU without free memory may still be used by a process that is ending.
CUDA_PROBE = f"""
import os, sys
import dyntrain.training.numpy_aliases, mxnet
if not mxnet.runtime.Features().is_enabled("CUDA"):
    sys.exit({NO_CUDA})
gpu, code = 0, 0
try:
    for gpu in range(mxnet.context.num_gpus()) or [0]:
        (mxnet.nd.ones((8,), ctx=mxnet.gpu(gpu)) + 1).wait_to_read()
except mxnet.base.MXNetError as error:
    words = " ".join(str(error).split())
    message = words[-200:]
    for mark in ("CUDA: ", "ErrStr:"):  # MXNet puts CUDA's error text behind these
        message = message.rpartition(mark)[2]
    print(f"GPU {{gpu}}: {{message}}")
    code = {TRY_AGAIN} if "out of memory" in words else {NO_KERNEL}
sys.stdout.flush()
os._exit(code)
"""
NO_IMAGE = "no kernel image is available"  # CUDA's error where a build has no code for the chip
IMPORT_SECONDS = 300.0  # CUDA's libraries come from a disk that may be cold
MOST_GPUS = 64
_BUILD = re.compile(r"mxnet(-(cu[0-9]+(mkl)?|mkl|native))?", re.IGNORECASE)


def builds(distributions: Iterable[str]) -> list[str]:
    """Names of the installed builds of MXNet. Two builds conflict, since they have the same files."""
    return sorted({name.lower() for name in distributions if _BUILD.fullmatch(name)})


async def check_cuda(
    gpus: int, probe: Sequence[str], nvidia_smi: Sequence[str], children: Children, log_path: Path
) -> None:
    """Compute with MXNet on each GPU.

    Raises InvalidConfiguration if MXNet cannot use a GPU, ProgramFailed if the check could not run. Bounded by
    IMPORT_SECONDS, and a minute for `nvidia_smi` to name the GPUs.
    """
    try:
        code, child = await children.run("mxnet", Program(probe, {}, log_path), IMPORT_SECONDS)
    except OSError as error:
        raise ProgramFailed(f"the check whether MXNet can use the GPUs could not be started: {error}") from error
    if code == NO_CUDA:
        raise InvalidConfiguration(
            f"the node has {gpus} GPUs, and its MXNet has no CUDA: install the build for GPUs, which the template does "
            "with Accelerator=Nvidia, or choose an instance type without GPUs"
        )
    if code == NO_KERNEL:
        cuda_error = child.last_output(lines=1)  # before nvidia-smi writes to the same log
        chips = await _chips(nvidia_smi, children, log_path)
        raise InvalidConfiguration(no_kernel(chips, cuda_error, builds(_installed_names())))
    if code != 0:
        message = f"MXNet cannot use the GPUs: {explain(code, IMPORT_SECONDS)}: {child.last_output(lines=5)}"
        raise ProgramFailed(message) if code in TEMPORARY_FAILURES else InvalidConfiguration(message)


def no_kernel(chips: str, cuda_error: str, installed: Sequence[str]) -> str:
    """Message that MXNet cannot compute on `chips`. Pure."""
    build = next((build for build in installed if BUILD_CAPABILITIES.get(build)), GPU_BUILD)
    supported = ", ".join(BUILD_CAPABILITIES[build])
    if NO_IMAGE in cuda_error:
        return f"{build} has no code for {chips}: it has {supported}; use instances of {usable_families(build)}"
    return f"MXNet cannot compute on {chips}: {cuda_error}; {build} has code for {supported}"


def _installed_names() -> Iterable[str]:
    return (distribution.name for distribution in distributions())


async def _chips(nvidia_smi: Sequence[str], children: Children, log_path: Path) -> str:
    """Names and compute capabilities of the GPUs, as nvidia-smi prints them, without duplicates."""
    query = (*nvidia_smi, "--query-gpu=name,compute_cap", "--format=csv,noheader")
    try:
        code, child = await children.run("nvidia-smi", Program(query, {}, log_path), LIST_SECONDS)
    except OSError:
        return "this GPU"
    lines = child.last_output(lines=MOST_GPUS, limit=10_000).splitlines() if code == 0 else []
    names = dict.fromkeys(line.strip() for line in lines if line.strip())
    return "; ".join(names) or "this GPU"
