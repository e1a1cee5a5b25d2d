"""What the reserved pool does to instances that its policy lists, as data. Each is safe to repeat; none ends an instance."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StartInstances:
    instances: tuple[str, ...]


@dataclass(frozen=True)
class StopInstances:
    """Only what the pool started itself, and after the job has let it go."""

    instances: tuple[str, ...]


@dataclass(frozen=True)
class TagElastic:
    """Ask that the instances join: what a person does by hand."""

    instances: tuple[str, ...]
    key: str


@dataclass(frozen=True)
class UntagElastic:
    """Ask that they leave."""

    instances: tuple[str, ...]
    key: str
