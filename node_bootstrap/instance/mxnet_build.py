"""Checks whether the installed build of MXNet can compute on the GPUs.

A build of MXNet for CPUs does not use the GPUs, so training with this build is far too slow. A build of MXNet without
code for the GPUs' chip can be imported, but fails at the first step of the training.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Sequence
from importlib.metadata import distributions
from pathlib import Path

from dyntrain.controller.contract.gpu_families import BUILD_CAPABILITIES, GPU_BUILD, usable_families
from dyntrain.node_bootstrap.host.errors import TRY_AGAIN, InvalidConfiguration, ProgramFailed
from dyntrain.node_bootstrap.host.processes import Children, Program, explain_exit
from dyntrain.node_bootstrap.instance.gpus import NVIDIA_SMI_SECONDS

NO_CUDA_EXIT_CODE, NO_KERNEL_EXIT_CODE = 3, 4
TEMPORARY_EXIT_CODES = (
    None,
    -signal.SIGKILL,
    TRY_AGAIN,
    126,
    127,
)  # exit codes of a check that may succeed later: after a slow disk, without memory, or if it could not start
# MXNet computes asynchronously: an error of a kernel is raised only when we wait for its result. os._exit skips CUDA's
# clean-up. A GPU without free memory may still be used by a process that is ending.
CUDA_PROBE_SCRIPT = f"""
import os, sys
import dyntrain.training.numpy_aliases, mxnet
if not mxnet.runtime.Features().is_enabled("CUDA"):
    sys.exit({NO_CUDA_EXIT_CODE})
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
    code = {TRY_AGAIN} if "out of memory" in words else {NO_KERNEL_EXIT_CODE}
sys.stdout.flush()
os._exit(code)
"""
NO_KERNEL_IMAGE_ERROR = "no kernel image is available"  # CUDA's error where a build has no code for the chip
IMPORT_SECONDS = 300.0  # CUDA's libraries come from a disk that may be cold
MAX_LISTED_GPUS = 64
_MXNET_PACKAGE_NAME = re.compile(r"mxnet(-(cu[0-9]+(mkl)?|mkl|native))?", re.IGNORECASE)


def mxnet_builds_in(distribution_names: Iterable[str]) -> list[str]:
    """Return the builds of MXNet among the names of installed packages. Builds share files."""
    return sorted(
        {
            distribution_name.lower()
            for distribution_name in distribution_names
            if _MXNET_PACKAGE_NAME.fullmatch(distribution_name)
        }
    )


async def check_mxnet_on_gpus(
    gpus: int, probe: Sequence[str], nvidia_smi: Sequence[str], children: Children, log_path: Path
) -> None:
    """Check that MXNet can compute on each GPU.

    Raises InvalidConfiguration if MXNet cannot use a GPU, and ProgramFailed if a later check may succeed. Takes at most
    IMPORT_SECONDS + NVIDIA_SMI_SECONDS.
    """
    try:
        exit_code, child = await children.run("mxnet", Program(probe, {}, log_path), IMPORT_SECONDS)
    except OSError as error:
        raise ProgramFailed(f"the check whether MXNet can use the GPUs could not be started: {error}") from error
    if exit_code == NO_CUDA_EXIT_CODE:
        raise InvalidConfiguration(
            f"the node has {gpus} GPUs, and its MXNet has no CUDA: install the build for GPUs, which the template does "
            "with Accelerator=Nvidia, or choose an instance type without GPUs"
        )
    if exit_code == NO_KERNEL_EXIT_CODE:
        cuda_error = child.last_output(lines=1)  # before nvidia-smi writes to the same log
        chip_names = await _gpu_chip_names(nvidia_smi, children, log_path)
        raise InvalidConfiguration(
            no_kernel_message(chip_names, cuda_error, mxnet_builds_in(_installed_distribution_names()))
        )
    if exit_code != 0:
        message = f"MXNet cannot use the GPUs: {explain_exit(exit_code, IMPORT_SECONDS)}: {child.last_output(lines=5)}"
        raise ProgramFailed(message) if exit_code in TEMPORARY_EXIT_CODES else InvalidConfiguration(message)


def no_kernel_message(chips: str, cuda_error: str, installed: Sequence[str]) -> str:
    """Return the text of the error that the installed build of MXNet cannot compute on the GPUs named `chips`. Pure."""
    mxnet_build = next((mxnet_build for mxnet_build in installed if BUILD_CAPABILITIES.get(mxnet_build)), GPU_BUILD)
    supported_chips = ", ".join(BUILD_CAPABILITIES[mxnet_build])
    if NO_KERNEL_IMAGE_ERROR in cuda_error:
        family_names = usable_families(mxnet_build)
        return f"{mxnet_build} has no code for {chips}, only for {supported_chips}; use instances of {family_names}"
    return f"MXNet cannot compute on {chips}: {cuda_error}; {mxnet_build} has code for {supported_chips}"


def _installed_distribution_names() -> Iterable[str]:
    return (distribution.name for distribution in distributions())


async def _gpu_chip_names(nvidia_smi: Sequence[str], children: Children, log_path: Path) -> str:
    """Return the names and compute capabilities of the GPUs, as nvidia-smi prints them, without duplicates."""
    query_command = (*nvidia_smi, "--query-gpu=name,compute_cap", "--format=csv,noheader")
    try:
        exit_code, child = await children.run("nvidia-smi", Program(query_command, {}, log_path), NVIDIA_SMI_SECONDS)
    except OSError:
        return "this GPU"
    lines = child.last_output(lines=MAX_LISTED_GPUS, limit=10_000).splitlines() if exit_code == 0 else []
    chip_names = dict.fromkeys(line.strip() for line in lines if line.strip())
    return "; ".join(chip_names) or "this GPU"
