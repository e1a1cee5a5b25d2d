"""`make verify`: everything that takes too long for each change, part by part, with a line of result for each.

    python .ci/verify.py [PART ...]      all parts, or the named ones

Each part's output is in build/verify/PART.log, and the printed lines are in build/verify/report.txt. A part that lacks
something on this system says so and counts as failed. The exit code says whether all parts passed.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

OUT = Path("build/verify")
SEEDS = range(1, 1 + int(os.environ.get("HUNTS", "4")))
HUNT_SECONDS = "60"
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(10_000))"
SUMMARY_LINES = re.compile(
    r"^=+ (.*\d+ (?:passed|failed).*) =+$"
    r"|^(not run: .*)$"
    r"|^(passed only alone: .*|failed twice: .*|patience: .*|killed \d+ of \d+ breaks.*)$",
    re.MULTILINE,
)
# Simulate a system that lacks these programs: /dev/null is mounted over them.
WITHOUT = """
for program in sshd ssh ip apt-get; do
  for place in $(PATH=$PATH:/usr/sbin:/sbin type -aP $program); do mount --bind /dev/null "$place" || exit 1; done
done
make test STRICT=1
"""
# The committed state, as a person who is not root: in the home of a temporary account.
USER = """
.ci/packages  # which that account may not install
name=dyntrain-verify
! id "$name" >/dev/null 2>&1 || userdel --force --remove "$name"  # left by a run that was killed
useradd --create-home --shell /bin/bash "$name" && trap 'userdel --force --remove "$name"' EXIT || exit 1
home=$(getent passwd "$name" | cut -d: -f6)
git clone --quiet . "$home/dyntrain" && chown -R "$name:" "$home/dyntrain" && cd "$home/dyntrain" || exit 1
env -u XDG_CACHE_HOME HOME="$home" USER="$name" LOGNAME="$name" \\
  setpriv --reuid="$name" --regid="$name" --init-groups make test STRICT=1
"""
PARTS: dict[str, Sequence[str]] = {
    "check": ("make", "check"),
    "test": ("make", "test", "STRICT=1"),
    "demo": ("bash", "-c", f"make demo && {sys.executable} .ci/check_report.py build/demo/report.json"),
    "jobs": ("make", "jobs", "STRICT=1"),
    "matrices": ("make", "matrices", "STRICT=1"),
    "python312": (sys.executable, ".ci/pythons.py"),
    "frameworks": (sys.executable, ".ci/frameworks"),
    "bare": ("make", "bare", "STRICT=1"),
    "horovod": ("make", "jobs", "ENGINE=horovod", "STRICT=1"),
    "busy": ("make", "test"),
    "without": ("unshare", "--mount", "bash", "-c", WITHOUT),
    "user": ("bash", "-c", USER),
    "hunts": (),
    "mutants": ("make", "mutants"),
    "left_over": (sys.executable, ".ci/left_over.py"),
}


def main(names: Sequence[str]) -> int:
    """Run the parts; returns the exit code."""
    unknown = sorted(set(names) - PARTS.keys())
    if unknown:
        sys.exit(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    OUT.mkdir(parents=True, exist_ok=True)
    failed = 0
    with (OUT / "report.txt").open("w") as report:
        for name in names or PARTS:
            started_at = time.monotonic()
            passed, summary = hunts() if name == "hunts" else part(name)
            failed += not passed
            seconds = time.monotonic() - started_at
            line = f"{'ok    ' if passed else 'FAILED'} {name:<10} {seconds:6.0f} s  {summary}".rstrip()
            for out in (sys.stdout, report):
                out.write(line + "\n")
                out.flush()
    return 1 if failed else 0


def part(name: str) -> tuple[bool, str]:
    """Run a part; returns whether it passed, and a summary."""
    log = OUT / f"{name}.log"
    with busy_loops(4 if name == "busy" else 0):
        passed = run_logged(PARTS[name], log)
    lines = ["".join(groups) for groups in SUMMARY_LINES.findall(log.read_text(errors="replace"))]
    return passed, "; ".join(lines) if passed or lines else f"see {log}"


def hunts() -> tuple[bool, str]:
    """Run fault hunts, two at a time beside a busy loop; returns whether all were clean, and which seeds were not."""

    def hunt(seed: int) -> bool:
        program = str(Path(sys.executable).with_name("dyntrain"))
        place = OUT / f"hunt-{seed}"
        argv = [program, "local", "chaos", "--duration", HUNT_SECONDS, "--seed", str(seed)]
        return run_logged([*argv, "--report", f"{place}.json"], place.with_suffix(".log"))

    with busy_loops(1), ThreadPoolExecutor(2) as two:
        clean = list(two.map(hunt, SEEDS))
    bad = [str(seed) for seed, good in zip(SEEDS, clean, strict=True) if not good]
    return not bad, f"{sum(clean)} of {len(clean)} clean" + (f"; not clean: seeds {', '.join(bad)}" if bad else "")


def run_logged(argv: Sequence[str], log: Path) -> bool:
    """Run a command with its output in `log`; returns whether it succeeded."""
    with log.open("wb") as out:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False).returncode == 0


@contextlib.contextmanager
def busy_loops(number: int) -> Iterator[None]:
    """Simulate other load on this machine. The loops end with this process, however it ends."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[1])
    os.environ["LINKS_BEFORE"] = " ".join(path.name for path in Path("/sys/class/net").glob("*"))  # for left_over.py
    sys.exit(main(sys.argv[1:]))
