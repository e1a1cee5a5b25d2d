"""Find the processes of one embedded cloud (an emulation of AWS) in /proc, and tell the kind of each process."""

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
    """The kind of a process with these command-line arguments, or None if faults must not hit the process."""
    return next(
        (
            victim_kind
            for identifying_text, victim_kind in _KIND_BY_COMMAND_TEXT
            if any(identifying_text in argument for argument in arguments)
        ),
        None,
    )


def victim_processes(root: int) -> dict[Victim, list[int]]:
    """The sorted ids of the descendants of the process `root`, grouped by kind of process. Zombie processes are left
    out, because a zombie process has no command line.
    """
    pids_by_kind: dict[Victim, list[int]] = {victim_kind: [] for victim_kind in Victim}
    for pid in sorted(descendants(root)):
        victim_kind = victim_kind_of(_command_line_arguments(pid))
        if victim_kind is not None:
            pids_by_kind[victim_kind].append(pid)
    return pids_by_kind


def stray_processes(endpoint: str) -> list[str]:
    """Running processes whose environment names the embedded cloud's endpoint, each as a text `pid command`. The
    embedded cloud sets the variable AWS_ENDPOINT_URL in the environment of every process that the cloud starts.
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
