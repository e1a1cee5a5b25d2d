"""Carries out the planned faults of a fault hunt on the processes and the cloud that there are."""

from __future__ import annotations

import heapq
import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from controller.local import census
from controller.local.chaos_plan import Cut, Fault, Freeze, Kill, Throttle, Victim
from controller.local.disturbance import Disorder, Disturbance
from controller.local.namespaces import Namespaces

DISORDER = Disorder(lost=0.1, doubled=0.2, late=0.2, late_seconds=4.0)

Undo = tuple[float, Callable[[], None]]  # seconds from now, and what to do then


class Storm:
    """Acts on the processes below this one, and on the links of `network`, if there is one.

    `counts` is what was really done, by kind; what found no victim is not in it.
    """

    def __init__(self, disturbance: Disturbance, network: Namespaces | None, tell: Callable[[str], None]) -> None:
        self._disturbance, self._network, self._tell = disturbance, network, tell
        self._frozen: set[int] = set()
        self._cut: set[str] = set()
        self._struck: Counter[str] = Counter()

    @property
    def counts(self) -> Counter[str]:
        return self._struck + self._disturbance.counts

    def run(self, planned: Sequence[Fault], duration: float) -> None:
        """Blocks for `duration` seconds. Events are in disorder all the time; `end` puts everything right."""
        self._disturbance.set(DISORDER)
        began, number = time.monotonic(), itertools.count()
        due: list[tuple[float, int, Callable[[], Undo | None]]] = [(fault.at, next(number), partial(self._strike, fault)) for fault in planned]
        heapq.heapify(due)
        while due and due[0][0] < duration:
            at, _, act = heapq.heappop(due)
            time.sleep(max(0.0, began + at - time.monotonic()))
            if lasting := act():
                seconds, undo = lasting
                heapq.heappush(due, (time.monotonic() - began + seconds, next(number), undo))
        time.sleep(max(0.0, began + duration - time.monotonic()))

    def end(self) -> None:
        """No fault lasts longer. Safe to call twice."""
        self._disturbance.set(Disorder())
        for pid in sorted(self._frozen):
            self._thaw(pid)
        for host in sorted(self._cut):
            self._mend(host)

    def _strike(self, fault: Fault) -> Undo | None:
        match fault:
            case Kill():
                self._signal(fault.victim, fault.pick, signal.SIGKILL, "killed")
                return None
            case Freeze():
                pid = self._signal(fault.victim, fault.pick, signal.SIGSTOP, "frozen")
                return None if pid is None else (fault.seconds, partial(self._thaw, pid))
            case Throttle():
                self._tell(f"fault: {fault.fraction:.0%} of the calls to {fault.service} throttled for {fault.seconds:.1f} s")
                self._disturbance.set(replace(DISORDER, throttled={fault.service: fault.fraction}))
                return fault.seconds, partial(self._disturbance.set, DISORDER)
            case Cut():
                host = self._cut_off(fault.pick)
                return None if host is None else (fault.seconds, partial(self._mend, host))

    def _cut_off(self, pick: float) -> str | None:
        among = [] if self._network is None else sorted(set(self._network.hosts) - self._cut)
        host = among[int(pick * len(among))] if among else ""
        if self._network is None or not self._network.cut(host):
            return None
        self._cut.add(host)
        self._struck["link cut"] += 1
        self._tell(f"fault: {host} cut off")
        return host

    def _mend(self, host: str) -> None:
        self._cut.discard(host)
        if self._network is not None and self._network.mend(host):
            self._tell(f"{host} connected again")

    def _signal(self, victim: Victim, pick: float, number: signal.Signals, word: str) -> int | None:
        among = [pid for pid in census.processes(os.getpid())[victim] if pid not in self._frozen]
        if not among:
            return None
        pid = among[int(pick * len(among))]
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return None
        if number is signal.SIGSTOP:
            self._frozen.add(pid)
        self._struck[f"{victim} {word}"] += 1
        self._tell(f"fault: {victim} {pid} {word}")
        return pid

    def _thaw(self, pid: int) -> None:
        self._frozen.discard(pid)
        if any(pid in pids for pids in census.processes(os.getpid()).values()):
            os.kill(pid, signal.SIGCONT)
            self._tell(f"thawed {pid}")
