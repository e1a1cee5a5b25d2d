"""Show the last log lines of a failed hunt. The log files are deleted with the cloud, and no hunt can be repeated
exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

TAIL_LINES = 8  # lines shown of each log
TAIL_BYTES = 20_000  # bytes read from the end of a log
LINE_WIDTH = 400  # characters shown of a line
LOG_FOLDER = Path("var/log/dyntrain")
WARNING_LEVELS = {"WARNING", "ERROR", "CRITICAL"}


def last_log_lines(state_dir: Path, problems: Iterable[str]) -> Iterator[str]:
    """The last log lines of each machine that a problem names and of every coordinator, and warnings of the
    controller's handlers.
    """
    text = "\n".join(problems)
    for machine in sorted((state_dir / "machines").glob("*")):
        patterns = ("node.log", "worker.log", "prepare-*.log", "coordinator.log")
        for pattern in patterns if machine.name in text else patterns[-1:]:
            for log in sorted((machine / LOG_FOLDER).glob(pattern)):
                yield from _titled_lines(f"{log.name} of {machine.name}", tail(log))
    for log in sorted((state_dir / "logs").glob("handler-*.log")):
        yield from _titled_lines(log.name, [line for line in tail(log, lines=0) if is_warning(line)][-TAIL_LINES:])


def tail(log: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last `lines` lines of the file; with `lines` 0, all lines of its last TAIL_BYTES."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def is_warning(line: str) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and entry.get("level") in WARNING_LEVELS


def _titled_lines(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"{title}, last lines:"
        yield from (f"    {line[:LINE_WIDTH]}" for line in lines)
