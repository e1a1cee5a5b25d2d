"""`make mutants`: breaks the product in many places, one at a time, and says which breaks no test notices.

    build/tools/mutants/bin/python .ci/mutants [--seed 1] [--breaks 100] [--jobs 2] [--tree DIR] [--floor PERCENT]

The breaks are a random sample of what cosmic-ray's operators can do to the rooms in `breaks.py`, the same for the same
seed and the same source of the product; `apart.py` says where none is made. Each is tried in a copy of the checkout DIR
(this one) below build/mutants: first with those of the room's test files that mention the module, then with the others,
the cheap ones first.
A break is killed when a test fails, or does not come to an end, which is said; else it has survived.

What is printed at the end is in build/mutants/report.txt, and all that is known in report.json. Fails when the tests
are not green without a break, when the copies are not what is tested, or when fewer than FLOOR percent are killed.
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
ENOUGH = 60.0  # seconds for any tests, and PATIENCE times what they took without a break
PATIENCE = 4.0
CHEAP = 8.0  # seconds of a file's tests, which come before dearer ones
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """`how` says what killed it; empty: nothing did."""

    broken: Break
    how: str
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description="Breaks that the tests ought to notice.")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--breaks", type=int, default=100, help="how many")
    parser.add_argument("--jobs", type=int, default=2, help="how many side by side")
    parser.add_argument(
        "--tree", type=Path, default=ROOT, help="a checkout whose product is broken and whose tests run"
    )
    parser.add_argument("--floor", type=float, default=0.0, help="percent that have to be killed")
    wanted = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    tree = wanted.tree.resolve()
    found = places(tree)
    breaks = sample(tree, found, wanted.seed, wanted.breaks)
    told = {"seed": wanted.seed, "of places": len(found), "source": digest(tree), "tree": str(tree)}
    tests = {room: mirrored(tree, room) for room in {broken.room for broken in breaks}}
    shutil.rmtree(OUT, ignore_errors=True)
    copies = [Copy(tree, OUT / f"copy-{number}") for number in range(wanted.jobs)]
    done: list[Verdict] = []
    try:
        say(f"{len(breaks)} breaks of {len(found)} places; first the tests without any")
        seconds = copies[0].clean(sorted({test for some in tests.values() for test in some}), wanted.jobs)
        for copy in copies:
            copy.prove()
        say(f"green in {sum(seconds.values()):.0f} s of tests")
        for verdict in verdicts(copies, breaks, tests, seconds):
            done.append(verdict)
            said = f"killed   {verdict.how}" if verdict.how else "SURVIVED"
            say(f"{len(done):4}/{len(breaks)} {verdict.seconds:6.1f} s  {verdict.broken}  {said}")
    finally:
        for copy in copies:
            copy.end_all()
            shutil.rmtree(copy.place, ignore_errors=True)
        if done:
            text = report(done, told)
            (OUT / "report.txt").write_text(text, encoding="utf-8")
            known = {**told, "breaks": [*map(entry, done)]}
            (OUT / "report.json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
            say(f"\n{text.rstrip()}")
    return int(100 * sum(bool(verdict.how) for verdict in done) < wanted.floor * len(done))


def verdicts(
    copies: Sequence[Copy], breaks: Sequence[Break], tests: Mapping[str, Sequence[str]], seconds: Mapping[str, float]
) -> Iterator[Verdict]:
    free: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for copy in copies:
        free.put(copy)

    def tried(broken: Break) -> Verdict:
        copy = free.get()
        try:
            return attempt(copy, broken, tests[broken.room], seconds)
        finally:
            free.put(copy)

    with ThreadPoolExecutor(len(copies)) as pool:
        try:
            for future in as_completed([pool.submit(tried, broken) for broken in breaks]):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for copy in copies:
                copy.end_all()


def attempt(copy: Copy, broken: Break, tests: Sequence[str], seconds: Mapping[str, float]) -> Verdict:
    began = time.monotonic()
    near = nearest(copy.place, tests, broken.place.file)
    others = [test for test in tests if test not in near]
    cheap = [test for test in others if seconds[test] < CHEAP]
    how = ""
    with copy.broken(broken.place.file, broken.source):
        for some in (near, cheap, [test for test in others if test not in cheap]):
            if some and not how:
                good, said = copy.test(some, ENOUGH + PATIENCE * sum(map(seconds.__getitem__, some)), "-x")
                how = "" if good else killer(said)
    return Verdict(broken, how, round(time.monotonic() - began, 1))


def killer(said: str) -> str:
    failed = FAILED.search(said)
    return f"by {failed[1]}" if failed else said.strip().splitlines()[-1][:120]


def report(done: Sequence[Verdict], told: Mapping[str, object]) -> str:
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
            ", ".join(f"{name} {value}" for name, value in told.items()),
            f"killed {len(done) - len(survivors)} of {len(done)} breaks; the tests of {unended} of them {UNENDED}",
            "",
        ]
    )


def entry(verdict: Verdict) -> dict[str, object]:
    broken, place = verdict.broken, asdict(verdict.broken.place)
    return {
        **place, "room": broken.room, "change": broken.change, "killed": bool(verdict.how), "how": verdict.how,
        "seconds": verdict.seconds,
    }  # fmt: skip


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
