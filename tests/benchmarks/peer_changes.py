"""The same membership changes under torchrun, for comparison: an agent for each node, on this machine, over gloo.

Torch is installed into an environment of its own below `build/`, from pip's index or from PyTorch's own index of CPU
wheels.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from cluster import ENVIRONMENT, HERE
from figures import progress

PLACE = HERE.parents[1] / "build" / "peer"
WHEELS = "https://download.pytorch.org/whl/cpu"
# Without this variable, torch 2.13 fails when a worker joins: the newcomer waits for an address that nobody writes.
SHARED_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
TORCH = "torch==2.13.0+cpu"  # the CPU build, as others have gigabytes of dependencies
RENDEZVOUS = "last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=3"
LONGEST, STEPS = 240.0, 8
INSTALL_SECONDS = 900.0


def installed() -> Path | None:
    """Install torch if needed, and return its environment's Python; None if torch cannot be installed here."""
    python = PLACE / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", PLACE], check=True, capture_output=True)
        known = subprocess.run([python, "-c", "import torch"], check=False, capture_output=True)
        if known.returncode:
            wants = [python, "-m", "pip", "install", "--quiet", "--extra-index-url", WHEELS, TORCH, "numpy"]
            subprocess.run(wants, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    except (subprocess.SubprocessError, OSError) as error:
        lines = str(getattr(error, "stderr", "") or error).strip().splitlines()
        progress(f"no peer: torch cannot be installed into {PLACE}: {lines[-1] if lines else error}")
        return None
    return python


class Agents:
    """One torchrun for each node."""

    def __init__(self, python: Path, folder: Path, workers: int, network: str, batch: int) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._folder = folder
        self._command = [
            str(python), "-m", "torch.distributed.run", f"--nnodes=2:{workers + 1}", "--nproc-per-node=1",
            "--max-restarts=100", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{port}", "--local-addr=127.0.0.1",
            f"--rdzv-conf={RENDEZVOUS}", str(HERE / "peer_train.py"),
            "--network", network, "--batch", str(batch), "--folder", str(folder),
        ]  # fmt: skip
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._started = 0

    @property
    def names(self) -> list[str]:
        return list(self._agents)

    def start(self) -> str:
        name = f"agent-{self._started}"
        self._started += 1
        environment = {**os.environ, **ENVIRONMENT, **SHARED_STORE, "PEER_AGENT": name}
        with (self._folder / f"{name}.log").open("wb") as out:
            self._agents[name] = subprocess.Popen(
                self._command, env=environment, stdout=out, stderr=out, start_new_session=True
            )
        return name

    def leave(self, name: str) -> None:
        self._agents.pop(name).send_signal(signal.SIGTERM)

    def steps(self, name: str) -> list[dict[str, Any]]:
        path = self._folder / f"{name}.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def wait_for(self, what: Callable[[list[dict[str, Any]]], Any], names: list[str] | None = None) -> None:
        """Wait until `what` is true of each agent's steps."""
        deadline = time.monotonic() + LONGEST
        while not all(what(self.steps(name)) for name in names or self.names):
            if time.monotonic() > deadline:
                raise TimeoutError(f"torchrun did not come so far within {LONGEST:.0f} s")
            time.sleep(0.05)

    def come_to(self, world: int) -> None:
        """Wait until all have made some steps in a group of `world` workers, so that their pace is the usual one."""
        self.wait_for(lambda steps: len(steps) > STEPS and all(each["world"] == world for each in steps[-STEPS:]))

    def close(self) -> None:
        for agent in self._agents.values():
            os.killpg(agent.pid, signal.SIGTERM)
        for name, agent in self._agents.items():
            try:
                agent.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(agent.pid, signal.SIGKILL)
            if steps := self.steps(name):
                with suppress(ProcessLookupError):
                    os.kill(steps[-1]["pid"], signal.SIGKILL)  # workers are in sessions of their own


@contextmanager
def agents(python: Path, workers: int, network: str, batch: int) -> Iterator[Agents]:
    with tempfile.TemporaryDirectory() as folder:
        group = Agents(python, Path(folder), workers, network, batch)
        try:
            yield group
        finally:
            group.close()


def pause(steps: list[dict[str, Any]], since: float, step: float) -> float:
    """Seconds from the last step of the old group to the first of the new one, less a usual step."""
    times = [each["at"] for each in steps]
    gaps = [after - before for before, after in pairwise(times) if after > since]
    return max(gaps) - step


def _again(steps: list[dict[str, Any]], died: float) -> float:
    """The time of a restarted worker's first step."""
    before = [each["pid"] for each in steps if each["at"] <= died][-1]
    return float(next(each["at"] for each in steps if each["at"] > died and each["pid"] != before))


def measured(python: Path, workers: int, network: str, batch: int, rounds: int) -> dict[str, Any]:
    results: dict[str, Any] = {"join": [], "leave": [], "kill": []}
    with agents(python, workers, network, batch) as nodes:
        for _ in range(workers):
            nodes.start()
        nodes.come_to(workers)
        times = [each["at"] for each in nodes.steps(nodes.names[0])[-STEPS:]]
        step = results["step"] = statistics.median(b - a for a, b in pairwise(times))
        for number in range(rounds):
            stay, since = nodes.names, time.time()
            newcomer = nodes.start()
            nodes.come_to(workers + 1)
            results["join"].append(max(pause(nodes.steps(name), since, step) for name in stay))
            since = time.time()
            nodes.leave(newcomer)
            nodes.come_to(workers)
            results["leave"].append(max(pause(nodes.steps(name), since, step) for name in stay))
            victim = nodes.steps(nodes.names[-1])[-1]["pid"]
            died = time.time()
            os.kill(victim, signal.SIGKILL)
            nodes.wait_for(lambda steps, at=died: len({each["pid"] for each in steps if each["at"] > at - 1.0}) > 1)
            nodes.come_to(workers)
            results["kill"].append(max(_again(nodes.steps(name), died) for name in stay) - died)
            last = ", ".join(f"{kind} {results[kind][-1]:.2f} s" for kind in ("join", "leave", "kill"))
            progress(f"torchrun, round {number + 1} of {rounds}: {last}")
    return results
