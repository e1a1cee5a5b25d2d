"""`make bench`: runs the controller's benchmarks, writes build/bench/*.json and prints a table with the bounds. Exit code 1 when one is not met."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(ROOT), str(HERE), str(HERE.parent)]

from bench_burst import burst  # noqa: E402
from bench_coldstart import coldstart  # noqa: E402
from bench_core import core  # noqa: E402

AT_LEAST, AT_MOST = ">=", "<="
INTAKE = ("on_tag_change", "on_lifecycle", "on_instance_state", "on_node_report")
BOUNDS: dict[str, dict[str, tuple[str, float]]] = {
    "core": {"merges_per_second": (AT_LEAST, 20_000), "resync_10000_nodes_seconds": (AT_MOST, 2.0)},
    "burst": {
        "publishes": (AT_MOST, 20),
        "writes": (AT_MOST, 2_200),
        "converged_seconds": (AT_MOST, 20.0),
        "tag_to_target_median_seconds": (AT_MOST, 2.0),
        "lost": (AT_MOST, 0),
    },
    "coldstart": {"zip_mb": (AT_MOST, 4.0), **dict.fromkeys(INTAKE, (AT_MOST, 450.0))},
}


def rows(name: str, found: dict[str, Any]) -> list[tuple[str, float, str]]:
    """One line a number: what, how much, and how it stands to its bound."""
    flat = {key: value for key, value in found.items() if not isinstance(value, dict)}
    for value in found.values():
        flat |= value if isinstance(value, dict) else {}
    return [(f"{name}.{key}", value, _verdict(value, *BOUNDS[name][key]) if key in BOUNDS[name] else "") for key, value in flat.items()]


def _verdict(value: float, relation: str, bound: float) -> str:
    met = value >= bound if relation == AT_LEAST else value <= bound
    return f"{relation} {bound:g}  {'met' if met else 'NOT MET'}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--package", type=Path, default=ROOT / "build" / "package" / "dev-x86_64")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench")
    parser.add_argument("--only", choices=tuple(BOUNDS), action="append")
    arguments = parser.parse_args()
    benches: dict[str, Callable[[], dict[str, Any]]] = {"core": core, "burst": burst, "coldstart": lambda: coldstart(arguments.package)}
    arguments.out.mkdir(parents=True, exist_ok=True)
    failed = False
    for name in arguments.only or benches:
        found = benches[name]()
        (arguments.out / f"{name}.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        for what, value, verdict in rows(name, found):
            sys.stdout.write(f"{what:45} {value:>12,.10g}  {verdict}\n")
            failed |= "NOT MET" in verdict
        sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
