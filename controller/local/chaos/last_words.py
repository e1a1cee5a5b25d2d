"""What was said last before a hunt ended badly: the files go with the cloud, and no hunt can be repeated exactly."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

TAIL = 8  # lines of each log
BYTES = 20_000  # the end of a file that is looked at
WIDTH = 400
LOGS = Path("var/log/dyntrain")
GRAVE = {"WARNING", "ERROR", "CRITICAL"}


def last_words(state_dir: Path, problems: Iterable[str]) -> Iterator[str]:
    """Of each machine that a problem names, of every coordinator, and what the controller's handlers warned of."""
    text = "\n".join(problems)
    for machine in sorted((state_dir / "machines").glob("*")):
        wanted = ("node.log", "worker.log", "prepare-*.log", "coordinator.log")
        for pattern in wanted if machine.name in text else wanted[-1:]:
            for log in sorted((machine / LOGS).glob(pattern)):
                yield from _words(f"{log.name} of {machine.name}", tail(log))
    for log in sorted((state_dir / "logs").glob("handler-*.log")):
        yield from _words(log.name, [line for line in tail(log, lines=0) if grave(line)][-TAIL:])


def tail(log: Path, lines: int = TAIL) -> list[str]:
    """0 lines: all of the file's last BYTES."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - BYTES))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def grave(line: str) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and entry.get("level") in GRAVE


def _words(whose: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"{whose}, last:"
        yield from (f"    {line[:WIDTH]}" for line in lines)
