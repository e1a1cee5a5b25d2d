"""State transfer of 256 MB to 1, 4 and 8 members over links of 200 Mb/s, so that links and not cores are the limit.

Eight members should take hardly longer than one, as each passes on what it has; one is limited by its link. The same
transfer without encryption, in turns, shows the processor time of encryption. Needs root, `ip` and `tc`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from dyntrain.training.session.generation.chains import plan_chains
from figures import Figure, at_most, progress, unbounded, write
from namespaces import Hosts, hosts

SIZE = int(os.environ.get("FANOUT_BYTES", 256_000_000))
MEGABITS = 200.0
RECEIVERS = (1, 4, 8)
ROUNDS = 3
MEMBER = str(Path(__file__).with_name("fanout_member.py"))


def member(here: Hosts, number: int, role: str, way: str, size: int) -> subprocess.Popen[str]:
    command = [sys.executable, MEMBER, role, here.addresses[number], str(size), way]
    return subprocess.Popen(here.within(number, command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise RuntimeError(f"a member of the benchmark ended with exit code {process.wait()}")
    return line.strip()


def transfer(here: Hosts, receivers: int, way: str, size: int = SIZE) -> tuple[float, float]:
    """Return (seconds until the last member had the state, CPU seconds of the first)."""
    members = [member(here, 0, "source", way, size)]
    members += [member(here, 1 + n, "member", way, size) for n in range(receivers)]
    try:
        addresses = [f"{here.addresses[n]}:{line_of(process)}" for n, process in enumerate(members)]
        for asking, sources in plan_chains(addresses[:1], addresses[1:]).items():
            process = members[addresses.index(asking)]
            assert process.stdin is not None
            process.stdin.write(",".join(sources) + "\n")
            process.stdin.flush()
        answers = [line_of(process).split() for process in members[1:]]
    finally:
        for process in members:
            process.kill()
            process.wait()
    return max(float(seconds) for seconds, _ in answers), float(answers[0][1])


def main(out: Path) -> list[Figure]:
    results: dict[str, Any] = {"bytes": SIZE, "megabits": MEGABITS, "seconds": {}, "cpu": {}}
    with hosts(1 + max(RECEIVERS), MEGABITS) as here:
        for turn in range(ROUNDS):
            for receivers in RECEIVERS:
                seconds, used = transfer(here, receivers, "encrypted")
                progress(f"round {turn + 1}: {receivers} receivers {seconds:.1f} s")
                results["seconds"].setdefault(receivers, []).append(seconds)
                if receivers == 1:
                    results["cpu"].setdefault("encrypted", []).append(used)
                    results["cpu"].setdefault("clear", []).append(transfer(here, 1, "clear")[1])
    median = {receivers: statistics.median(each) for receivers, each in results["seconds"].items()}
    allowed = SIZE * 8 / (MEGABITS * 1e6)
    cpu = {way: statistics.median(each) for way, each in results["cpu"].items()}
    write(out, "fanout", {**results, "medians": median, "allowed": allowed})
    return [
        unbounded("fanout.1.seconds", median[1]),
        unbounded("fanout.4.seconds", median[4]),
        unbounded("fanout.8.seconds", median[8]),
        at_most("fanout.1.of_what_the_link_allows", median[1] / allowed, 1.15),
        at_most("fanout.8.of_1", median[8] / median[1], 1.5),
        unbounded("fanout.encrypted.cpu_seconds_a_gigabyte", cpu["encrypted"] / SIZE * 1e9),
        unbounded("fanout.clear.cpu_seconds_a_gigabyte", cpu["clear"] / SIZE * 1e9),
    ]
