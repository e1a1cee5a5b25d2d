"""Finds workers whose states differ: at each boundary from a few values, at each formation from all values. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dyntrain.training.protocol.checks import Checks


def difference(checks: Mapping[str, Checks]) -> str | None:
    """Describe the first array that differs between workers, with the instances of each value.

    Return None if all arrays are equal on all workers.
    """
    compared_checks = {instance: checksums for instance, checksums in checks.items() if checksums}
    for array_checks in zip(*compared_checks.values(), strict=False):
        if len({checksum for _, checksum in array_checks}) > 1:
            names = dict.fromkeys(name for name, _ in array_checks)
            instances_of: dict[str, list[str]] = {}
            for instance, (_, checksum) in zip(compared_checks, array_checks, strict=True):
                instances_of.setdefault(checksum, []).append(instance)
            groups = [" and ".join(instances) for instances in instances_of.values()]
            return f"{' or '.join(names)} is one on {', another on '.join(groups)}"
    return None
