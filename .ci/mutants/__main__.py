"""`make mutants`: breaks the product in many places, one at a time, and lists the breaks that no test detects.

    build/tools/mutants/bin/python .ci/mutants [--seed 1] [--breaks 100] [--jobs 2] [--tree DIR] [--floor PERCENT]

The breaks are a random sample of what cosmic-ray's operators can change in the rooms of `breaks.py`, the same for the
same seed and the same source; `apart.py` excludes places. Each is tried in a copy of the checkout DIR (default: this
one) below build/mutants: first with those of the room's test files that mention the module, then with the others, cheap
ones first. A break is killed when a test fails or does not end, as the output says; otherwise it has survived.

The printed summary is in build/mutants/report.txt, all results in report.json. Fails if the tests are not green without
a break, if the copies are not what is tested, or if fewer than FLOOR percent are killed.
"""

from __future__ import annotations

import argparse
import json
import queue
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from breaks import ROOMS, Break, digest, mirrored, nearest, places, sample
from copies import ROOT, UNENDED, Copy

OUT = ROOT / "build" / "mutants"
ENOUGH = 60.0  # time limit of tests in seconds, plus PATIENCE times their time without a break
PATIENCE = 4.0
CHEAP = 8.0  # seconds of a file's tests; cheaper files run first
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """Result of a break. `how`: what killed it, "" if it survived."""

    broken: Break
    how: str
    seconds: float


def main() -> int:
    """Run the sample; returns the exit code."""
    parser = argparse.ArgumentParser(prog="make mutants", description="Breaks that the tests ought to notice.")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--breaks", type=int, default=100, help="how many")
    parser.add_argument("--jobs", type=int, default=2, help="how many side by side")
    parser.add_argument(
        "--tree", type=Path, default=ROOT, help="a checkout whose product is broken and whose tests run"
    )
    parser.add_argument("--floor", type=float, default=0.0, help="percent that have to be killed")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    tree = options.tree.resolve()
    all_places = places(tree)
    breaks = sample(tree, all_places, options.seed, options.breaks)
    summary = {"seed": options.seed, "of places": len(all_places), "source": digest(tree), "tree": str(tree)}
    tests = {room: mirrored(tree, room) for room in {broken.room for broken in breaks}}
    shutil.rmtree(OUT, ignore_errors=True)
    copies = [Copy(tree, OUT / f"copy-{number}") for number in range(options.jobs)]
    done: list[Verdict] = []
    try:
        say(f"{len(breaks)} breaks of {len(all_places)} places; first the tests without any")
        seconds = copies[0].clean(sorted({test for some in tests.values() for test in some}), options.jobs)
        for copy in copies:
            copy.prove()
        say(f"green in {sum(seconds.values()):.0f} s of tests")
        for verdict in verdicts(copies, breaks, tests, seconds):
            done.append(verdict)
            outcome = f"killed   {verdict.how}" if verdict.how else "SURVIVED"
            say(f"{len(done):4}/{len(breaks)} {verdict.seconds:6.1f} s  {verdict.broken}  {outcome}")
    finally:
        for copy in copies:
            copy.end_all()
            shutil.rmtree(copy.place, ignore_errors=True)
        if done:
            text = report(done, summary)
            (OUT / "report.txt").write_text(text, encoding="utf-8")
            results = {**summary, "breaks": [*map(entry, done)]}
            (OUT / "report.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            say(f"\n{text.rstrip()}")
    return int(100 * sum(bool(verdict.how) for verdict in done) < options.floor * len(done))


def verdicts(
    copies: Sequence[Copy], breaks: Sequence[Break], tests: Mapping[str, Sequence[str]], seconds: Mapping[str, float]
) -> Iterator[Verdict]:
    """Try the breaks in the copies, in parallel."""
    free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def attempt_on_free_copy(broken: Break) -> Verdict:
        copy = free.get()
        try:
            return attempt(copy, broken, tests[broken.room], seconds)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        try:
            for future in as_completed([pool.submit(attempt_on_free_copy, broken) for broken in breaks]):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for copy in copies:
                copy.end_all()


def attempt(copy: Copy, broken: Break, tests: Sequence[str], seconds: Mapping[str, float]) -> Verdict:
    """Try one break."""
    started_at = time.monotonic()
    nearest_tests = nearest(copy.place, tests, broken.place.file)
    others = [test for test in tests if test not in nearest_tests]
    cheap = [test for test in others if seconds[test] < CHEAP]
    how = ""
    with copy.broken(broken.place.file, broken.source):
        for some in (nearest_tests, cheap, [test for test in others if test not in cheap]):
            if some and not how:
                good, output = copy.test(some, ENOUGH + PATIENCE * sum(map(seconds.__getitem__, some)), "-x")
                how = "" if good else killer(output)
    return Verdict(broken, how, round(time.monotonic() - started_at, 1))


def killer(output: str) -> str:
    """What killed a break, from the tests' output."""
    failed = FAILED.search(output)
    return f"by {failed[1]}" if failed else output.strip().splitlines()[-1][:120]


def report(done: Sequence[Verdict], summary: Mapping[str, object]) -> str:
    """The summary as text."""
    lines = [f"{'room':<28} killed survived"]
    for room in ROOMS:
        killed = [bool(verdict.how) for verdict in done if verdict.broken.room == room]
        lines += [f"{room:<28} {sum(killed):6} {killed.count(False):8}"] if killed else []
    survivors = sorted((verdict.broken for verdict in done if not verdict.how), key=lambda broken: broken.place)
    unended = sum(verdict.how.startswith(UNENDED) for verdict in done)
    return "\n".join(
        [
            *lines,
            "",
            *(f"survived: {broken}" for broken in survivors),
            ", ".join(f"{name} {value}" for name, value in summary.items()),
            f"killed {len(done) - len(survivors)} of {len(done)} breaks; the tests of {unended} of them {UNENDED}",
            "",
        ]
    )


def entry(verdict: Verdict) -> dict[str, object]:
    """A result for report.json."""
    broken, place = verdict.broken, asdict(verdict.broken.place)
    return {
        **place, "room": broken.room, "change": broken.change, "killed": bool(verdict.how), "how": verdict.how,
        "seconds": verdict.seconds,
    }  # fmt: skip


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
