"""Finds workers whose states differ: at each boundary from a few values, at each formation from all values. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dyntrain.training.protocol.checks import Checks


def describe_difference(checks: Mapping[str, Checks]) -> str | None:
    """Describe the first array that differs between workers, with the instances of each value.

    Return None if all arrays are equal on all workers.
    """
    compared_checks = {instance_id: checksums for instance_id, checksums in checks.items() if checksums}
    for array_checks in zip(*compared_checks.values(), strict=False):
        if len({checksum for _, checksum in array_checks}) > 1:
            array_names = dict.fromkeys(name for name, _ in array_checks)
            instances_by_checksum: dict[str, list[str]] = {}
            for instance_id, (_, checksum) in zip(compared_checks, array_checks, strict=True):
                instances_by_checksum.setdefault(checksum, []).append(instance_id)
            instance_groups = [" and ".join(instances) for instances in instances_by_checksum.values()]
            return f"{' or '.join(array_names)} is one on {', another on '.join(instance_groups)}"
    return None
