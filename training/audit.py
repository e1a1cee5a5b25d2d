"""Proves from the ledgers that every sample was trained on exactly once in each finished epoch.

    python -m training.audit LEDGER_DIR [--samples N] [--json]

Exit code 0: exact; 1: samples lost or doubled; 2: the ledger cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from training.ledger import INTENTS, read_lines
from training.protocol import MODULE
from training.terms import read_journal


@dataclass
class Audit:
    """`lost` and `doubled` count samples over all finished epochs; `epochs` maps each to the number of steps that counted."""

    samples: int
    epochs: dict[int, int] = field(default_factory=dict)
    lost: int = 0
    doubled: int = 0
    void_intents: int = 0

    @property
    def exact(self) -> bool:
        return not self.lost and not self.doubled and bool(self.epochs)


def audit(journal: list[dict[str, Any]], intents: list[dict[str, Any]], samples: int) -> Audit:
    """Pure: the verdict over the coordinator's records and all workers' intents. Epochs count when the job's end lies beyond them."""
    generations = [record for record in journal if record["kind"] == "generation"]
    starts = {record["number"]: record["position"]["step"] for record in generations}
    numbers = [record["number"] for record in generations]
    finished = [record["position"] for record in journal if record["kind"] == "finished"]
    reached = finished[-1] if finished else (generations[-1]["position"] if generations else {"epoch": 0, "step": 0})
    ends = {number: starts[following] for number, following in pairwise(numbers)}
    if numbers:
        ends[numbers[-1]] = reached["step"]

    result = Audit(samples)
    taken: dict[int, Counter[int]] = {epoch: Counter() for epoch in range(reached["epoch"])}
    steps: dict[int, set[int]] = {epoch: set() for epoch in range(reached["epoch"])}
    for intent in intents:
        number, step, epoch = intent["g"], intent["s"], intent["e"]
        if number not in starts or not starts[number] <= step < ends[number] or _superseded(number, step, numbers, starts):
            result.void_intents += 1
        elif epoch in taken:
            taken[epoch].update(intent["i"])
            steps[epoch].add(step)
    for epoch, counts in taken.items():
        result.epochs[epoch] = len(steps[epoch])
        result.lost += sum(1 for index in range(samples) if not counts[index])
        result.doubled += sum(count - 1 for count in counts.values() if count > 1) + sum(1 for index in counts if not 0 <= index < samples)
    return result


def _superseded(number: int, step: int, numbers: list[int], starts: dict[int, int]) -> bool:
    """A later generation that began at or before `step` trained it again (a restart went back further than one generation)."""
    return any(starts[later] <= step for later in numbers if later > number)


def audit_directory(directory: Path, samples: int | None = None) -> Audit:
    """Raises FileNotFoundError when there is no journal, ValueError when the number of samples is not known or the job cannot be audited."""
    journal = read_journal(directory)
    if not journal:
        raise FileNotFoundError(f"{directory}: no journal there; name the ledger directory of a job")
    intents = [line for path in sorted(directory.glob(f"*{INTENTS}")) for line in read_lines(path)]
    job: dict[str, Any] = next((record for record in journal if record["kind"] == "job"), {})
    if job.get("batching") == MODULE:
        raise ValueError(f"{directory} is of a Module job: its script divides the data itself, and no worker can say which samples it took")
    samples = samples or job.get("samples")
    if not samples:
        raise ValueError("the journal does not record the number of samples: give --samples")
    return audit(journal, intents, samples)


def main(argv: list[str] | None = None) -> int:
    purpose = "Prove from the ledgers that each epoch took every sample exactly once."
    parser = argparse.ArgumentParser(prog="python -m training.audit", description=purpose)
    parser.add_argument("ledger_dir", type=Path)
    parser.add_argument("--samples", type=int, help="samples in an epoch; default: what the job recorded")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    try:
        result = audit_directory(args.ledger_dir, args.samples)
    except (OSError, ValueError) as error:
        print(f"audit: {error}", file=sys.stderr)
        return 2
    if args.json:
        print(json.dumps({**asdict(result), "exact": result.exact}))
    else:
        verdict = "exact" if result.exact else "NOT exact"
        counts = f"{result.lost} lost, {result.doubled} doubled, {result.void_intents} intents void"
        print(f"{len(result.epochs)} epochs of {result.samples} samples: {counts}: {verdict}")
    return 0 if result.exact else 1


if __name__ == "__main__":
    sys.exit(main())
