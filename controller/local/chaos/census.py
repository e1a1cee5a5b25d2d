"""Find the processes of one embedded cloud in /proc, and sort them by kind."""

from __future__ import annotations

import contextlib
from pathlib import Path

from dyntrain.controller.local.chaos.plan import Victim
from dyntrain.training.host.parentage import descendants, with_environment

# The text that identifies a kind in a command line; the first match counts. `exec_child` soon executes another program.
_KINDS: tuple[tuple[str, Victim | None], ...] = (
    ("exec_child.py", None),
    ("dyntrain.controller.local.lambdas.runtime", Victim.HANDLER),
    ("dyntrain.controller.local.machines.init_process", Victim.MACHINE),
    ("node_bootstrap", Victim.BOOTSTRAP),
    ("dyntrain.training.coordinator", Victim.COORDINATOR),
    ("dyntrain.training.engine.blank", Victim.PSLITE),
    ("dyntrain.training.examples", Victim.WORKER),
)


def kind_of(arguments: list[str]) -> Victim | None:
    """The kind of a process by its arguments, or None for a process that faults must not hit."""
    return next((kind for text, kind in _KINDS if any(text in argument for argument in arguments)), None)


def processes(root: int) -> dict[Victim, list[int]]:
    """The descendants of the process `root` by kind, in order of their ids. Zombies have no command line and are left
    out.
    """
    victims: dict[Victim, list[int]] = {kind: [] for kind in Victim}
    for pid in sorted(descendants(root)):
        kind = kind_of(_arguments(pid))
        if kind is not None:
            victims[kind].append(pid)
    return victims


def strays(endpoint: str) -> list[str]:
    """Running processes with the cloud's endpoint in their environment, as `pid command`. The cloud sets this variable
    for every process that it starts.
    """
    return [f"{pid} {' '.join(_arguments(pid))}"[:200] for pid in with_environment(f"AWS_ENDPOINT_URL={endpoint}")]


def _arguments(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return [
            argument.decode(errors="replace")
            for argument in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if argument
        ]
    return []
