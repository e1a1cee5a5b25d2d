"""The processes of one cloud on this host, by kind, from /proc."""

from __future__ import annotations

import contextlib
from pathlib import Path

from dyntrain.controller.local.chaos.plan import Victim
from dyntrain.training.host.parentage import descendants, with_environment

# What a command line must have, in this order of looking: `exec_child` is a process on its way to becoming another.
_KINDS: tuple[tuple[str, Victim | None], ...] = (
    ("exec_child.py", None),
    ("dyntrain.controller.local.lambdas.runtime", Victim.HANDLER),
    ("dyntrain.controller.local.machines.init_process", Victim.MACHINE),
    ("node_bootstrap", Victim.BOOTSTRAP),
    ("dyntrain.training.coordinator", Victim.COORDINATOR),
    ("dyntrain.training.engine.blank", Victim.PSLITE),
    ("dyntrain.training.examples", Victim.WORKER),
)


def kind_of(words: list[str]) -> Victim | None:
    """The kind of a process by its arguments; None for one that faults must not hit."""
    return next((kind for part, kind in _KINDS if any(part in word for word in words)), None)


def processes(root: int) -> dict[Victim, list[int]]:
    """The descendants of `root` by kind, in order of their ids. Zombies have no command line and are left out."""
    victims: dict[Victim, list[int]] = {kind: [] for kind in Victim}
    for pid in sorted(descendants(root)):
        kind = kind_of(_words(pid))
        if kind is not None:
            victims[kind].append(pid)
    return victims


def strays(endpoint: str) -> list[str]:
    """`pid command` of each process with the cloud's endpoint in its environment: everything that the cloud starts has
    it.
    """
    return [f"{pid} {' '.join(_words(pid))}"[:200] for pid in with_environment(f"AWS_ENDPOINT_URL={endpoint}")]


def _words(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return [
            word.decode(errors="replace") for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") if word
        ]
    return []
