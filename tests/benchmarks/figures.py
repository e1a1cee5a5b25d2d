"""The results of a benchmark: figures with their bounds, and the JSON file that holds them."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Figure:
    """One line of the table. With `bound` None it is for information only."""

    name: str
    value: float
    relation: Literal["<=", ">=", ""] = ""
    bound: float | None = None

    @property
    def met(self) -> bool:
        if self.bound is None:
            return True
        return self.value <= self.bound if self.relation == "<=" else self.value >= self.bound

    def __str__(self) -> str:
        verdict = "" if self.bound is None else f"{self.relation} {self.bound:<10,g} {'met' if self.met else 'NOT MET'}"
        return f"{self.name:45} {self.value:>12,.10g}  {verdict}".rstrip()


def unbounded(name: str, value: float) -> Figure:
    return Figure(name, value)


def at_most(name: str, value: float, bound: float) -> Figure:
    return Figure(name, value, "<=", bound)


def at_least(name: str, value: float, bound: float) -> Figure:
    return Figure(name, value, ">=", bound)


def processor_seconds(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    """Peak resident memory of a process, in MB."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024


def progress(text: str) -> None:
    """Print a progress message to standard error, as standard output is for the figures."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def write(out: Path, name: str, results: dict[str, Any]) -> None:
    """Write `<out>/<name>.json`."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
