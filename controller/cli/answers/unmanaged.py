"""What people read of a cluster whose policy is not valid: the controller can decide nothing for it."""

from __future__ import annotations


def unmanaged(cluster: str, problem: str) -> str:
    """Which field is wrong, what follows, and what to do."""
    return (
        f"{cluster}: its policy is invalid ({problem}), so the controller leaves the cluster alone; mend the stack's "
        f"parameters, or `dyntrain cluster create {cluster} --config FILE --replace`"
    )
