"""What the workers of a job must have in common. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from dyntrain.training.protocol.messages import WorkerHello

AGREED = (
    "epochs",
    "samples",
    "drawn_from",
    "global_batch",
    "seed",
    "batching",
    "layout",
    "engine",
)


def disagreement(hello: WorkerHello, others: Iterable[WorkerHello]) -> str | None:
    """Why the worker cannot train with the others, or None."""
    for other in others:
        for name in AGREED:
            mine, theirs = getattr(hello, name), getattr(other, name)
            if mine != theirs:
                differs = f"{name} is {mine} here and {theirs} on {other.instance_id}"
                return f"{differs}: all workers must run the same script and arguments"
    return None
