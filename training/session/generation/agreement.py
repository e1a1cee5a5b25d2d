"""Compares the settings that must be equal on all workers of a job. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from dyntrain.training.journal import JobBegun
from dyntrain.training.protocol.messages import MODULE, WorkerHello

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
BEGUN_WITH = ("layout", "samples", "drawn_from", "global_batch", "seed", "batching")


def disagreement(hello: WorkerHello, others: Iterable[WorkerHello]) -> str | None:
    """Return the reason why the worker cannot train with the others, or None."""
    for other in others:
        for name in AGREED:
            value, other_value = getattr(hello, name), getattr(other, name)
            if value != other_value:
                difference = f"{name} is {value} here and {other_value} on {other.name}"
                return f"{difference}: all workers must run the same script and arguments"
    return None


def changed_settings(hello: WorkerHello, begun: JobBegun, done: int) -> str | None:
    """Return the reason why the script cannot continue a job that began as `begun` and has `done` epochs, or None.

    The script may train for more epochs, or for fewer but at least `done`. For a Module script only the layout is
    compared, as it divides its data itself and chooses its batch size by the number of workers.
    """
    for name in BEGUN_WITH if begun.batching != MODULE else ("layout",):
        value, first_value = getattr(hello, name), getattr(begun, name)
        if value != first_value and (first_value is not None or name == "drawn_from"):
            difference = (
                "the script's model is another one than"
                if name == "layout"
                else f"{name} is {value}, and was {first_value}"
            )
            return f"{difference} when the job began: run the script as it was, or begin a new job"
    if hello.epochs < done:
        return f"the script trains {hello.epochs} epochs, the job has done {done}: raise them, or begin a new job"
    return None
