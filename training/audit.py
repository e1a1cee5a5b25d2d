"""Proves from the ledgers that every sample was trained on exactly once in each finished epoch.

    python -m dyntrain.training.audit LEDGER_DIR [--samples N] [--json]

The exit code is 0 if the audit is exact, 1 if samples were lost or doubled, 2 if the ledger cannot be read.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path

from dyntrain.training.coordinator.terms import read_journal
from dyntrain.training.journal import Entry, GenerationSettled, JobBegun, JobFinished, LoopFinished
from dyntrain.training.ledger import Intent, read_intents
from dyntrain.training.protocol.messages import MODULE, START


@dataclass
class Audit:
    """Result of an audit, in which `lost` and `doubled` are sums over all finished epochs."""

    samples: int  # samples in an epoch
    drawn_from: int | None = None  # samples in the dataset; None: an epoch takes all of them
    epochs: dict[int, int] = field(default_factory=dict)  # number of valid steps of each epoch
    lost: int = 0  # number of samples that were not trained on
    doubled: int = 0  # number of samples that were trained on again
    void_intents: int = 0  # number of intents that do not count
    # (samples, drawn_from) of each loop, by the loop's first epoch
    later: dict[int, tuple[int, int | None]] = field(default_factory=dict)  # sizes of further loops over epochs

    def sample_counts(self, epoch: int) -> tuple[int, int]:
        """Return the number of samples that the epoch takes, and the number of samples in the dataset."""
        loop_start = max((start for start in self.later if start <= epoch), default=None)
        samples, drawn_from = (self.samples, self.drawn_from) if loop_start is None else self.later[loop_start]
        return samples, drawn_from or samples

    @property
    def exact(self) -> bool:
        return not self.lost and not self.doubled and bool(self.epochs)


def audit(entries: Sequence[Entry], intents: Iterable[Intent], samples: int, drawn_from: int | None = None) -> Audit:
    """Compare the coordinator's journal with all workers' intents (the samples of each step). Pure.

    Only complete epochs are audited: an epoch is complete if the job went beyond it, and no loop over epochs ended
    within it.
    """
    generations = [entry for entry in entries if isinstance(entry, GenerationSettled)]
    start_steps = {generation.number: generation.position.step for generation in generations}
    generation_numbers = [generation.number for generation in generations]
    end_positions = [entry.position for entry in entries if isinstance(entry, JobFinished)]
    end_position = end_positions[-1] if end_positions else (generations[-1].position if generations else START)
    end_steps = {number: start_steps[next_number] for number, next_number in pairwise(generation_numbers)}
    if generation_numbers:
        end_steps[generation_numbers[-1]] = end_position.step

    further_loops = [entry for entry in entries if isinstance(entry, JobBegun) and entry.from_epoch]
    loop_sizes = {entry.from_epoch: (entry.samples or samples, entry.drawn_from) for entry in further_loops}
    result = Audit(samples, drawn_from, later=loop_sizes)
    incomplete_epochs = {
        entry.reached.epoch for entry in entries if isinstance(entry, LoopFinished) and entry.reached.offset
    }
    complete_epochs = [epoch for epoch in range(end_position.epoch) if epoch not in incomplete_epochs]
    counts_by_epoch: dict[int, Counter[int]] = {epoch: Counter() for epoch in complete_epochs}
    steps_by_epoch: dict[int, set[int]] = {epoch: set() for epoch in complete_epochs}
    for intent in intents:
        number, step, epoch = intent.generation, intent.step, intent.epoch
        if (
            number not in start_steps
            or not start_steps[number] <= step < end_steps[number]
            or _is_superseded(number, step, generation_numbers, start_steps)
        ):
            result.void_intents += 1
        elif epoch in counts_by_epoch:
            counts_by_epoch[epoch].update(intent.indices)
            steps_by_epoch[epoch].add(step)
    for epoch, counts in counts_by_epoch.items():
        result.epochs[epoch] = len(steps_by_epoch[epoch])
        expected_samples, dataset_samples = result.sample_counts(epoch)
        trained_samples = sum(1 for index in range(dataset_samples) if counts[index])
        result.lost += max(0, expected_samples - trained_samples)
        result.doubled += sum(count - 1 for count in counts.values() if count > 1) + sum(
            1 for index in counts if not 0 <= index < dataset_samples
        )
        result.doubled += max(0, trained_samples - expected_samples)
    return result


def _is_superseded(number: int, step: int, numbers: list[int], start_steps: dict[int, int]) -> bool:
    """Whether a later generation (group of workers) began at or before `step`, and so trained this step again."""
    return any(start_steps[later_number] <= step for later_number in numbers if later_number > number)


def audit_directory(directory: Path, samples: int | None = None) -> Audit:
    """Audit the ledger (journal and intents) in a directory.

    Raises FileNotFoundError if the directory contains no journal, and ValueError if the number of samples is unknown or
    the job cannot be audited.
    """
    entries = read_journal(directory)
    if not entries:
        raise FileNotFoundError(f"{directory} contains no journal: name the ledger directory of a job")
    first_loop = next((entry for entry in entries if isinstance(entry, JobBegun)), None)
    if first_loop is not None and first_loop.batching == MODULE:
        raise ValueError(
            f"{directory} belongs to a Module job: its script divides the data itself, so the workers do not know "
            "which samples they took"
        )
    drawn_from = first_loop.drawn_from if first_loop is not None and samples is None else None
    samples = samples or (first_loop.samples if first_loop else None)
    if not samples:
        raise ValueError("the journal does not record the number of samples: give --samples")
    return audit(entries, read_intents(directory), samples, drawn_from)


def main(argv: list[str] | None = None) -> int:
    """Audit the ledger that the command line names, print the result, and return the exit code."""
    purpose = "Prove from the ledgers that each epoch took every sample exactly once."
    parser = argparse.ArgumentParser(prog="python -m dyntrain.training.audit", description=purpose)
    parser.add_argument("ledger_dir", type=Path)
    parser.add_argument("--samples", type=int, help="samples in an epoch; default: the number in the journal")
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
        counts_text = f"{result.lost} lost, {result.doubled} doubled, {result.void_intents} intents void"
        further_loops_text = "".join(
            f", from epoch {epoch} on of {samples}" for epoch, (samples, _) in sorted(result.later.items())
        )
        print(f"{len(result.epochs)} epochs of {result.samples} samples{further_loops_text}: {counts_text}: {verdict}")
    return 0 if result.exact else 1


if __name__ == "__main__":
    sys.exit(main())
