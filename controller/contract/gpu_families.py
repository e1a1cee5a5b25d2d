"""Which instance types can train with which build of MXNet. Pure: nodes, commands and the doctor ask the same table.

A build carries machine code for some compute capabilities, and for want of PTX the driver makes none for newer chips:
code for X.y runs on X.z from y on, and on no other X
(https://docs.nvidia.com/cuda/cuda-c-programming-guide/#binary-compatibility). MXNet imports all the same, counts the
GPUs and copies to them; the first wait for a kernel raises "no kernel image is available".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

GPU_BUILD = "mxnet-cu112"

# By distribution, what its build was configured for. mxnet-cu112's was seen in its library, and on an H100.
# https://github.com/apache/mxnet/tree/1.9.1/config/distribution
BUILD_CAPABILITIES: Mapping[str, tuple[str, ...]] = {
    "mxnet-cu112": ("5.0", "6.0", "7.0", "8.0", "8.6"),
    "mxnet-cu110": ("5.0", "6.0", "7.0", "8.0"),
    "mxnet-cu102": ("3.0", "5.0", "6.0", "7.0", "7.5"),
    "mxnet-cu101": ("3.0", "5.0", "6.0", "7.0", "7.5"),
    "mxnet": (),
}


@dataclass(frozen=True)
class Family:
    """The GPUs of an instance family. `capability` is CUDA's compute capability, "" for a GPU of another maker.
    `driver`: whether AWS's image with NVIDIA's driver, which the cluster's template and jobs use, supports it; it does
    not support fractions of a GPU or chips before Turing.
    """

    gpu: str
    capability: str
    driver: bool = True
    arm64: bool = False


# GPUs: https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html
# Compute capabilities: https://developer.nvidia.com/cuda-gpus
# Drivers: "supported EC2 instances" of https://docs.aws.amazon.com/dlami/latest/devguide/appendix-ami-release-notes.html
FAMILIES: Mapping[str, Family] = {
    "p2": Family("K80", "3.7", driver=False),
    "p3": Family("V100", "7.0", driver=False),
    "p3dn": Family("V100", "7.0", driver=False),
    "g3": Family("M60", "5.2", driver=False),
    "g3s": Family("M60", "5.2", driver=False),
    "g4ad": Family("Radeon Pro V520", "", driver=False),
    "g4dn": Family("T4", "7.5"),
    "g5": Family("A10G", "8.6"),
    "g5g": Family("T4G", "7.5", arm64=True),
    "g6": Family("L4", "8.9"),
    "gr6": Family("L4", "8.9"),
    "g6f": Family("L4", "8.9", driver=False),
    "gr6f": Family("L4", "8.9", driver=False),
    "g6e": Family("L40S", "8.9"),
    "p4d": Family("A100", "8.0"),
    "p4de": Family("A100", "8.0"),
    "p5": Family("H100", "9.0"),
    "p5e": Family("H200", "9.0"),
    "p5en": Family("H200", "9.0"),
    "p6-b200": Family("B200", "10.0"),
    "p6-b300": Family("B300", "10.3"),
    "p6e-gb200": Family("GB200", "10.0", arm64=True),
    "p6e-gb300": Family("GB300", "10.3", arm64=True),
    "g7": Family("RTX PRO 4500", "12.0"),
    "g7e": Family("RTX PRO 6000", "12.0"),
}


def family_of(instance_type: str) -> Family | None:
    """The GPU family of the instance type; None when it has no GPU, or one that this table does not know."""
    return FAMILIES.get(instance_type.partition(".")[0])


def runs_on(capability: str, build: str) -> bool:
    """Whether the build has code for a chip of this compute capability. An unknown build is assumed to have it."""
    capabilities = BUILD_CAPABILITIES.get(distribution(build))
    if capabilities is None:
        return True
    major, minor = _version_parts(capability)
    return any(_version_parts(code)[0] == major and _version_parts(code)[1] <= minor for code in capabilities)


def cannot_train(instance_type: str, build: str = GPU_BUILD) -> str:
    """Why the type's GPUs cannot train with the build, and what to take instead; "" when they can, or when the family
    is unknown. `build` is a name as pip takes it, with or without a version.
    """
    family, name = family_of(instance_type), distribution(build)
    if family is None:
        return ""
    advice = f"take {usable_families(name if BUILD_CAPABILITIES.get(name) else GPU_BUILD)}"
    if family.arm64:
        return f"{instance_type} is arm64, for which MXNet has no build with CUDA: {advice}"
    if not family.capability:
        return f"{instance_type} has {family.gpu} GPUs, and MXNet trains on NVIDIA's alone: {advice}"
    if runs_on(family.capability, name):
        return ""
    if not BUILD_CAPABILITIES[name]:
        return f"{name} has no code for GPUs, and {instance_type} has {family.gpu} GPUs: take {GPU_BUILD}==1.9.1"
    description = f"{instance_type} has {family.gpu} GPUs (compute capability {family.capability})"
    return f"{description}, and {name} has code for {', '.join(BUILD_CAPABILITIES[name])} alone: {advice}"


def lacks_driver(instance_type: str) -> str:
    """What to do about GPUs that AWS's image with NVIDIA's driver does not drive; "" when it does, or when the family
    is unknown.
    """
    family = family_of(instance_type)
    if family is None or family.driver:
        return ""
    problem = f"AWS's image with NVIDIA's driver has none for the {family.gpu} GPUs of {instance_type}"
    return f"{problem}: take {usable_families(GPU_BUILD)}"


def cannot_be_a_node(instance_type: str, build: str = GPU_BUILD) -> str:
    """Why the type cannot be a node of the cluster's template with Accelerator=Nvidia; "" as for `cannot_train`."""
    return cannot_train(instance_type, build) or lacks_driver(instance_type)


def unknown_gpu_warning(instance_type: str) -> str:
    """A warning for a type with GPUs that the table does not know; "" for the others. Such types are let through."""
    if family_of(instance_type) is not None:
        return ""
    return (
        f"whether MXNet has code for the GPUs of {instance_type} is not known here: each node tries it before it joins"
    )


def usable_families(build: str = GPU_BUILD) -> str:
    """The families that the template's nodes can be of, in words; "" for a build without GPU code."""
    names = [name for name, family in FAMILIES.items() if _can_be_node(family, build)]
    return " or ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def distribution(build: str) -> str:
    """The package's name without its version: `mxnet-cu112` for `mxnet-cu112==1.9.1`; the template's default for ""."""
    return build.partition("==")[0] or GPU_BUILD


def _can_be_node(family: Family, build: str) -> bool:
    return family.driver and not family.arm64 and runs_on(family.capability, build)


def _version_parts(capability: str) -> tuple[int, int]:
    major, _, minor = capability.partition(".")
    return int(major), int(minor or 0)
