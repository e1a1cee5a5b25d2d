"""Find the processes of one embedded cloud in /proc, and sort the processes by their kind."""

from __future__ import annotations

import contextlib
from pathlib import Path

from dyntrain.controller.local.chaos.plan import Victim
from dyntrain.training.host.parentage import descendants, with_environment

# A text in a command line identifies the kind of process; the first match counts. `exec_child.py` soon executes another
# program.
_KIND_BY_COMMAND_TEXT: tuple[tuple[str, Victim | None], ...] = (
    ("exec_child.py", None),
    ("dyntrain.controller.local.lambdas.runtime", Victim.HANDLER),
    ("dyntrain.controller.local.machines.init_process", Victim.MACHINE),
    ("node_bootstrap", Victim.BOOTSTRAP),
    ("dyntrain.training.coordinator", Victim.COORDINATOR),
    ("dyntrain.training.engine.blank", Victim.PSLITE),
    ("dyntrain.training.examples", Victim.WORKER),
)


def victim_kind_of(arguments: list[str]) -> Victim | None:
    """The kind of a process, by its command-line arguments, or None if no injected fault may hit the process."""
    return next(
        (
            victim_kind
            for identifying_text, victim_kind in _KIND_BY_COMMAND_TEXT
            if any(identifying_text in argument for argument in arguments)
        ),
        None,
    )


def victim_processes(root: int) -> dict[Victim, list[int]]:
    """The ids of the descendants of the process `root` for each kind of process, in order. Zombie processes have no
    command line and are left out.
    """
    victims: dict[Victim, list[int]] = {victim_kind: [] for victim_kind in Victim}
    for pid in sorted(descendants(root)):
        victim_kind = victim_kind_of(_command_line_arguments(pid))
        if victim_kind is not None:
            victims[victim_kind].append(pid)
    return victims


def stray_processes(endpoint: str) -> list[str]:
    """Running processes with the embedded cloud's endpoint in their environment, as `pid command`. The cloud sets this
    environment variable for every process that it starts.
    """
    return [
        f"{pid} {' '.join(_command_line_arguments(pid))}"[:200]
        for pid in with_environment(f"AWS_ENDPOINT_URL={endpoint}")
    ]


def _command_line_arguments(pid: int) -> list[str]:
    with contextlib.suppress(OSError):
        return [
            argument.decode(errors="replace")
            for argument in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if argument
        ]
    return []
