"""The table of the instance types that can train with each build (pip package) of MXNet. Nodes, commands and `dyntrain
doctor` use this table of instance types. Pure.

Each build of MXNet contains machine code for some of CUDA's compute capabilities. No build of MXNet contains PTX, the
code from which NVIDIA's driver could generate machine code for newer chips. Machine code for compute capability X.y
runs only on chips of capability X.z with z >= y
(https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility). If the build has no code for the GPUs,
MXNet can still be imported, can count the GPUs, and can copy data to the GPUs. Only the first wait for a GPU kernel
raises the error "no kernel image is available".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GPU_BUILD = "mxnet-cu112"  # the pip package that is used unless people name another

# The compute capabilities for which each distribution was built. For mxnet-cu112 the list was also read from the
# library, and tested on an H100.
# https://github.com/apache/mxnet/tree/1.9.1/config/distribution
BUILD_CAPABILITIES: Mapping[str, tuple[str, ...]] = {
    "mxnet-cu112": ("5.0", "6.0", "7.0", "8.0", "8.6"),
    "mxnet-cu110": ("5.0", "6.0", "7.0", "8.0"),
    "mxnet-cu102": ("3.0", "5.0", "6.0", "7.0", "7.5"),
    "mxnet-cu101": ("3.0", "5.0", "6.0", "7.0", "7.5"),
    "mxnet": (),
}


@dataclass(frozen=True)
class InstanceFamily:
    """The GPUs of an EC2 instance family. `capability` is CUDA's compute capability, or "" if the GPUs are not
    NVIDIA's.

    `driver` says whether AWS's machine image with NVIDIA's driver supports the GPUs. The template of clusters and the
    jobs use AWS's image, which supports neither fractions of a GPU nor GPUs older than Turing.
    """

    gpu: str  # the GPU's model name
    capability: str  # CUDA's compute capability, such as 8.6
    driver: bool = True  # AWS's image has a driver for the GPU
    arm64: bool = False  # the processor is arm64, not x86


# GPUs: https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html
# Compute capabilities: https://developer.nvidia.com/cuda-gpus
# Drivers: "supported EC2 instances" of https://docs.aws.amazon.com/dlami/latest/devguide/appendix-ami-release-notes.html
INSTANCE_FAMILIES: Mapping[str, InstanceFamily] = {
    "p2": InstanceFamily("K80", "3.7", driver=False),
    "p3": InstanceFamily("V100", "7.0", driver=False),
    "p3dn": InstanceFamily("V100", "7.0", driver=False),
    "g3": InstanceFamily("M60", "5.2", driver=False),
    "g3s": InstanceFamily("M60", "5.2", driver=False),
    "g4ad": InstanceFamily("Radeon Pro V520", "", driver=False),
    "g4dn": InstanceFamily("T4", "7.5"),
    "g5": InstanceFamily("A10G", "8.6"),
    "g5g": InstanceFamily("T4G", "7.5", arm64=True),
    "g6": InstanceFamily("L4", "8.9"),
    "gr6": InstanceFamily("L4", "8.9"),
    "g6f": InstanceFamily("L4", "8.9", driver=False),
    "gr6f": InstanceFamily("L4", "8.9", driver=False),
    "g6e": InstanceFamily("L40S", "8.9"),
    "p4d": InstanceFamily("A100", "8.0"),
    "p4de": InstanceFamily("A100", "8.0"),
    "p5": InstanceFamily("H100", "9.0"),
    "p5e": InstanceFamily("H200", "9.0"),
    "p5en": InstanceFamily("H200", "9.0"),
    "p6-b200": InstanceFamily("B200", "10.0"),
    "p6-b300": InstanceFamily("B300", "10.3"),
    "p6e-gb200": InstanceFamily("GB200", "10.0", arm64=True),
    "p6e-gb300": InstanceFamily("GB300", "10.3", arm64=True),
    "g7": InstanceFamily("RTX PRO 4500", "12.0"),
    "g7e": InstanceFamily("RTX PRO 6000", "12.0"),
}


def family_of(instance_type: str) -> InstanceFamily | None:
    """The instance type's family. Returns None for a type without GPU or with an unknown GPU."""
    return INSTANCE_FAMILIES.get(instance_type.partition(".")[0])


def build_supports(capability: str, build: str) -> bool:
    """Whether the build has code for chips of this compute capability. A build that is not in `BUILD_CAPABILITIES` is
    assumed to have code for all chips.
    """
    capabilities = BUILD_CAPABILITIES.get(distribution_name(build))
    if capabilities is None:
        return True
    major, minor = _version_parts(capability)
    return any(_version_parts(version)[0] == major and _version_parts(version)[1] <= minor for version in capabilities)


def cannot_train(instance_type: str, build: str = GPU_BUILD) -> str:  # the reason, or ""
    """A text that says why the type's GPUs cannot train with the build of MXNet, and which instance families can train
    with the build. Returns "" if the GPUs can train or are unknown. `build` is the name of a pip package, with or
    without a version.
    """
    gpu_family, build_name = family_of(instance_type), distribution_name(build)
    if gpu_family is None:
        return ""
    advice = f"take {usable_families(build_name if BUILD_CAPABILITIES.get(build_name) else GPU_BUILD)}"
    if gpu_family.arm64:
        return f"{instance_type} is arm64, for which MXNet has no build with CUDA: {advice}"
    if not gpu_family.capability:
        return f"{instance_type} has {gpu_family.gpu} GPUs, and MXNet trains on NVIDIA's alone: {advice}"
    if build_supports(gpu_family.capability, build_name):
        return ""
    if not BUILD_CAPABILITIES[build_name]:
        return (
            f"{build_name} has no code for GPUs, and {instance_type} has {gpu_family.gpu} GPUs: take {GPU_BUILD}==1.9.1"
        )
    description = f"{instance_type} has {gpu_family.gpu} GPUs (compute capability {gpu_family.capability})"
    return f"{description}, and {build_name} has code for {', '.join(BUILD_CAPABILITIES[build_name])} alone: {advice}"


def lacks_driver(instance_type: str) -> str:  # the problem, or ""
    """A text that says that AWS's machine image has no driver for the type's GPUs, and which instance families to use
    instead. Returns "" if the image has a driver or the type is unknown.
    """
    family = family_of(instance_type)
    if family is None or family.driver:
        return ""
    problem = f"AWS's image with NVIDIA's driver has none for the {family.gpu} GPUs of {instance_type}"
    return f"{problem}: take {usable_families(GPU_BUILD)}"


def cannot_be_a_node(instance_type: str, build: str = GPU_BUILD) -> str:  # the reason, or ""
    """A text that says why an instance of this type cannot be a node of a cluster that was made from the template with
    Accelerator=Nvidia. Returns "" if an instance of the type can be a node, or if the type's GPUs are unknown.
    """
    return cannot_train(instance_type, build) or lacks_driver(instance_type)


def unknown_gpu_warning(instance_type: str) -> str:
    """A warning about an instance type that is not in `INSTANCE_FAMILIES`. Returns "" for a type in
    `INSTANCE_FAMILIES`. Instance types with unknown GPUs are not refused.
    """
    if family_of(instance_type) is not None:
        return ""
    return f"it is unknown whether MXNet has code for the GPUs of {instance_type}: each node tests this before it joins"


def usable_families(build: str = GPU_BUILD) -> str:
    """A text that lists the instance families that a cluster's nodes can use with this build. Returns "" for a build
    without GPU code.
    """
    family_names = [name for name, family in INSTANCE_FAMILIES.items() if _can_be_node(family, build)]
    return " or ".join(text for text in (", ".join(family_names[:-1]), *family_names[-1:]) if text)


def distribution_name(build: str) -> str:
    """The package's name without its version: `mxnet-cu112` for `mxnet-cu112==1.9.1`. If `build` is "", returns the
    default of the cluster's template.
    """
    return build.partition("==")[0] or GPU_BUILD


def _can_be_node(family: InstanceFamily, build: str) -> bool:
    return family.driver and not family.arm64 and build_supports(family.capability, build)


def _version_parts(capability: str) -> tuple[int, int]:
    major, _, minor = capability.partition(".")
    return int(major), int(minor or 0)
