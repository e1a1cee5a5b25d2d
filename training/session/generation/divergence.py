"""Workers whose states differ: found at each boundary in samples, at each formation in full. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from dyntrain.training.protocol.checks import Checks


def difference(checks: Mapping[str, Checks]) -> str | None:
    """The first array in which the workers differ, and who has what; None: they are equal, as far as was looked."""
    compared = {instance: each for instance, each in checks.items() if each}
    for column in zip(*compared.values(), strict=False):
        if len({checksum for _, checksum in column}) > 1:
            names = dict.fromkeys(name for name, _ in column)
            who: dict[str, list[str]] = {}
            for instance, (_, checksum) in zip(compared, column, strict=True):
                who.setdefault(checksum, []).append(instance)
            return f"{' or '.join(names)} is one on {', another on '.join(' and '.join(each) for each in who.values())}"
    return None
