"""Show the last log lines of a failed fault-injection hunt. The log lines must be shown, because the log files are
usually deleted with the cloud and no hunt can be repeated exactly.
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
    """The last log lines of each machine that `problems` mention. The result also has the last log lines of every
    coordinator, and the last warnings of the controller's handlers.
    """
    problems_text = "\n".join(problems)
    for machine_folder in sorted((state_dir / "machines").glob("*")):
        log_patterns = ("node.log", "worker.log", "prepare-*.log", "coordinator.log")
        for log_pattern in log_patterns if machine_folder.name in problems_text else log_patterns[-1:]:
            for log_path in sorted((machine_folder / LOG_FOLDER).glob(log_pattern)):
                yield from _titled_lines(f"{log_path.name} of {machine_folder.name}", log_tail(log_path))
    for log_path in sorted((state_dir / "logs").glob("handler-*.log")):
        yield from _titled_lines(
            log_path.name, [line for line in log_tail(log_path, lines=0) if is_warning(line)][-TAIL_LINES:]
        )


def log_tail(log_path: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last `lines` lines of the file, from at most the last TAIL_BYTES bytes. If `lines` is 0, the result has
    all lines of the file's last TAIL_BYTES bytes.
    """
    try:
        with log_path.open("rb") as log_file:
            log_file.seek(max(0, log_path.stat().st_size - TAIL_BYTES))
            return log_file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []


def is_warning(line: str) -> bool:
    try:
        log_entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(log_entry, dict) and log_entry.get("level") in WARNING_LEVELS


def _titled_lines(title: str, lines: list[str]) -> Iterator[str]:
    if lines:
        yield f"{title}, last lines:"
        yield from (f"    {line[:LINE_WIDTH]}" for line in lines)
