"""An engine's groups on hosts with links: the processes stay and form one group after another."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dyntrain.training.protocol.engines import EngineName
from dyntrain.training.protocol.node_messages import GroupReady, NodeHello
from dyntrain.training.session.generation.ps_group import ConnectedNode, plan_rendezvous
from namespaces import Hosts

MEMBER = str(Path(__file__).with_name("model_member.py"))
FIRST_PORT = 9100
SILENCE, QUIET_BYTES = 0.5, 100_000
LONGEST = 180.0  # for an answer: MXNet's import takes seconds of a processor in each process
ONE_THREAD = "OMP_NUM_THREADS=1"  # there are more processes than this machine has processors

Key = tuple[str, tuple[int, ...], str]


class Member:
    """One process on one host."""

    def __init__(self, here: Hosts, host: int, *arguments: str) -> None:
        command = ["env", ONE_THREAD, sys.executable, MEMBER, *arguments]
        self._process = subprocess.Popen(
            here.within(host, command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, **order: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], LONGEST)[0]:
            raise TimeoutError(f"a member of the benchmark said nothing for {LONGEST:.0f} s")
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"a member of the benchmark ended with exit code {self._process.wait()}")
        words: dict[str, Any] = json.loads(line)
        return words

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Groups:
    """A worker process and one for servers on each host. `close` ends all processes."""

    def __init__(self, here: Hosts, hosts: int, engine: EngineName = "pslite") -> None:
        self._here, self._number, self._engine = here, 0, engine
        self.first_server = 0  # pid of the last formed group's server on the first host
        self._servers: list[Member] = []
        self.workers: list[Member] = []
        try:
            for host in range(hosts):
                self._servers.append(Member(here, host, "servers"))
                self.workers.append(Member(here, host, "worker", here.addresses[host], engine))
            for member in [*self._servers, *self.workers]:
                member.answer()
        except BaseException:
            self.close()
            raise

    def form(self, keys: Sequence[Key], workers: int, servers: int) -> list[dict[str, Any]]:
        """Form a group with workers on the first hosts and servers on the first of those.

        Returns each worker's answer about its formation.
        """
        self._number += 1
        if self._engine == "horovod":
            return self._meet(keys, workers)
        environment = {
            "DMLC_PS_ROOT_URI": self._here.addresses[0],
            "DMLC_PS_ROOT_PORT": str(FIRST_PORT + self._number),
            "DMLC_NUM_WORKER": str(workers),
            "DMLC_NUM_SERVER": str(servers),
        }
        for host, role in [(0, "scheduler"), *((host, "server") for host in reversed(range(servers)))]:
            own = {**environment, "DMLC_NODE_HOST": self._here.addresses[host]}
            self._servers[host].tell(do="start", role=role, environment=own)
            self.first_server = int(self._servers[host].answer()["started"])
        for worker in self.workers[:workers]:
            worker.tell(do="form", environment=environment, keys=keys, generation=self._number)
        return [worker.answer() for worker in self.workers[:workers]]

    def _meet(self, keys: Sequence[Key], workers: int) -> list[dict[str, Any]]:
        """Form a Horovod group as the coordinator would."""
        port, first = FIRST_PORT + self._number, self._here.addresses[0]
        hello = NodeHello(cluster="bench", instance_id="first", private_ip=first, attempt=1, base=True)
        names = [str(host) for host in range(workers)]
        group = plan_rendezvous(self._number, ConnectedNode(hello, GroupReady(scheduler_port=port, blanks=2)), names)
        self._servers[0].tell(do="start", role="rendezvous", environment=group.environment)
        self._servers[0].answer()
        for name, worker in zip(names, self.workers, strict=False):
            worker.tell(do="form", environment=group.environment_of(name), keys=keys, generation=self._number)
        return [worker.answer() for worker in self.workers[:workers]]

    def exchange(self, workers: int, times: int, backward: float = 0.0) -> list[float]:
        """Seconds of each exchange, until the last worker has all sums; the gradients arrive in `backward` seconds."""
        for worker in self.workers[:workers]:
            worker.tell(do="exchange", times=times, backward=backward)
        seconds = [worker.answer()["seconds"] for worker in self.workers[:workers]]
        return [max(each) for each in zip(*seconds, strict=True)]

    def release(self, workers: int) -> float:
        """Kill the last worker, let the others push and wait, and then each push its share of the zeros.

        Returns the seconds from that order until all are free. Then the survivors leave the group.
        """
        survivors = self.workers[: workers - 1]
        self.workers.pop(workers - 1).kill()
        for worker in survivors:
            worker.tell(do="begin")
            worker.answer()
        self._wait_for_silence(workers - 1)
        for worker in survivors:
            worker.tell(do="abort", generation=self._number)
            if (phase := worker.answer()["phase"]) != "wait":
                raise RuntimeError(f"a survivor is in phase {phase}, and was to wait for what nobody pushes")
        for share, worker in enumerate(survivors):
            worker.tell(do="pump", generation=self._number, count=1, share=share, shares=len(survivors))
        began = min(float(worker.answer()["began"]) for worker in survivors)
        for worker in survivors:
            worker.tell(do="freed")
        freed = max(float(worker.answer()["at"]) for worker in survivors)
        self.leave(workers - 1)
        return freed - began

    def _wait_for_silence(self, hosts: int) -> None:
        """Wait until the pushes have arrived, and the hosts send only ps-lite's attempts to reach the lost worker."""
        before, deadline = 0, time.monotonic() + LONGEST
        while (now := sum(self._here.sent(host) for host in range(hosts))) - before > QUIET_BYTES:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the hosts still send after {LONGEST:.0f} s")
            before = now
            time.sleep(SILENCE)

    def leave(self, workers: int) -> None:
        for worker in self.workers[:workers]:
            worker.tell(do="dissolve")
        for worker in self.workers[:workers]:
            worker.answer()
        for member in self._servers:
            member.tell(do="stop")
            member.answer()

    def close(self) -> None:
        for member in [*self._servers, *self.workers]:
            member.kill()
