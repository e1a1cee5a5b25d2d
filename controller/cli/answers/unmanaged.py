"""The message about a cluster that the controller does not manage, because the cluster's policy is invalid."""

from __future__ import annotations


def unmanaged_message(cluster: str, problem: str) -> str:
    """The message that a cluster's policy is invalid, with the wrong field, the consequence and the remedy."""
    return (
        f"{cluster}: its policy is invalid ({problem}), so the controller leaves the cluster alone; mend the stack's "
        f"parameters, or `dyntrain cluster create {cluster} --config FILE --replace`"
    )
