"""Compares the settings that must be equal on all workers of a job. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from dyntrain.training.journal import JobBegun
from dyntrain.training.protocol.messages import MODULE, WorkerHello

AGREED_SETTINGS = (
    "epochs",
    "samples",
    "drawn_from",
    "global_batch",
    "seed",
    "batching",
    "layout",
    "engine",
)
KEPT_SETTINGS = ("layout", "samples", "drawn_from", "global_batch", "seed", "batching")


def find_disagreement(hello: WorkerHello, other_workers: Iterable[WorkerHello]) -> str | None:
    """Return the reason why the worker cannot train with the other workers, or None if all settings agree."""
    for other_worker in other_workers:
        for name in AGREED_SETTINGS:
            value, other_value = getattr(hello, name), getattr(other_worker, name)
            if value != other_value:
                difference = f"{name} is {value} here and {other_value} on {other_worker.name}"
                return f"{difference}: all workers must run the same script and arguments"
    return None


def describe_changed_settings(hello: WorkerHello, begun: JobBegun, done_epochs: int) -> str | None:
    """Return the reason why the script cannot continue a job that began with the settings `begun`, or None.

    The script may train for more or fewer epochs than before, but not for fewer than `done_epochs`. For a script of
    MXNet's `Module` only the model's layout is compared, as the script itself divides its data, and chooses its batch
    size by the number of workers.
    """
    for name in KEPT_SETTINGS if begun.batching != MODULE else ("layout",):
        value, job_value = getattr(hello, name), getattr(begun, name)
        if value != job_value and (job_value is not None or name == "drawn_from"):
            difference = (
                "the script's model is another one than"
                if name == "layout"
                else f"{name} is {value}, and was {job_value}"
            )
            return f"{difference} when the job began: run the script as it was, or begin a new job"
    if hello.epochs < done_epochs:
        return (
            f"the script trains {hello.epochs} epochs, the job has done {done_epochs}: raise them, or begin a new job"
        )
    return None
