"""`make bench [BENCH="core burst"]`: runs the benchmarks and prints their figures and bounds; exit code 1 for a miss.

A benchmark is a module `bench_<name>.py` here with `main(out: Path) -> list[Figure]`, which writes `<out>/<name>.json`;
its docstring says what it measures. Each runs in an interpreter of its own, so that none disturbs the next.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PREFIX = "bench_"


def names() -> list[str]:
    return sorted(path.stem.removeprefix(PREFIX) for path in HERE.glob(f"{PREFIX}*.py"))


def measured(name: str, out: Path, into: Path) -> int:
    """Run a benchmark in this interpreter, and write its figures to the file `into`."""
    figures = importlib.import_module(f"{PREFIX}{name}").main(out)
    into.write_text(json.dumps([asdict(figure) for figure in figures]), encoding="utf-8")
    return 0


def reported(name: str, out: Path) -> bool:
    """Run a benchmark in an interpreter of its own, and return whether all bounds were met."""
    from figures import Figure

    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "figures.json"
        command = [sys.executable, str(HERE), name, "--out", str(out), "--into", str(into)]
        path = os.pathsep.join([str(ROOT), str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False)
        if done.returncode or not into.exists():
            print(f"{name:45} failed with exit code {done.returncode}", flush=True)
            return False
        figures = [Figure(**entry) for entry in json.loads(into.read_text(encoding="utf-8"))]
    print(*figures, sep="\n", flush=True)
    return all(figure.met for figure in figures)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description="Benchmarks; BENCH names some of them.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())}; default: all")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", help="folder for the JSON files")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(names()))
    if unknown:
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(names())}")
    out = arguments.out.absolute()
    if arguments.into is not None:
        return measured(arguments.names[0], out, arguments.into)
    met = [reported(name, out) for name in arguments.names or names()]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
