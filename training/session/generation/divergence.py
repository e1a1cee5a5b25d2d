"""Finds workers whose states differ: at each boundary from a few values, at each formation from all. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dyntrain.training.protocol.checks import Checks


def difference(checks: Mapping[str, Checks]) -> str | None:
    """Describe the first array that differs between workers, with the instances of each value; or return None."""
    compared = {instance: sums for instance, sums in checks.items() if sums}
    for column in zip(*compared.values(), strict=False):
        if len({checksum for _, checksum in column}) > 1:
            names = dict.fromkeys(name for name, _ in column)
            instances_of: dict[str, list[str]] = {}
            for instance, (_, checksum) in zip(compared, column, strict=True):
                instances_of.setdefault(checksum, []).append(instance)
            groups = [" and ".join(instances) for instances in instances_of.values()]
            return f"{' or '.join(names)} is one on {', another on '.join(groups)}"
    return None
