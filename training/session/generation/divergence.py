"""Finds workers whose states differ: at each boundary from a few values, at each formation from all. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dyntrain.training.protocol.checks import Checks


def difference(checks: Mapping[str, Checks]) -> str | None:
    """Describe the first array in which the workers differ, and who has which value; None if no difference is found."""
    compared = {instance: each for instance, each in checks.items() if each}
    for column in zip(*compared.values(), strict=False):
        if len({checksum for _, checksum in column}) > 1:
            names = dict.fromkeys(name for name, _ in column)
            who: dict[str, list[str]] = {}
            for instance, (_, checksum) in zip(compared, column, strict=True):
                who.setdefault(checksum, []).append(instance)
            return f"{' or '.join(names)} is one on {', another on '.join(' and '.join(each) for each in who.values())}"
    return None
