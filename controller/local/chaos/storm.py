"""Apply the planned faults of a fault-injection test (`dyntrain local chaos`) to running processes, network links, the
shared volume and the emulation of AWS.
"""

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
from typing import Protocol

from dyntrain.controller.local.chaos import census
from dyntrain.controller.local.chaos.plan import (
    Fault,
    LinkCut,
    LinkSlowdown,
    ProcessFreeze,
    ProcessKill,
    ServiceThrottle,
    Victim,
    VolumeStall,
)
from dyntrain.controller.local.disturbance import Disturbance, DisturbanceRates

HUNT_DISTURBANCE = DisturbanceRates(lost=0.1, doubled=0.2, late=0.2, late_seconds=4.0, behind_seconds=4.0)

Undo = tuple[float, Callable[[], None]]  # seconds from now, and the function that then ends the fault


class HostLinks(Protocol):
    """The network links of the hosts on which machines run. All methods return whether the host's link was changed; the
    result is False if the host no longer exists.
    """

    @property
    def hosts(self) -> list[str]: ...

    def cut_link(self, host: str) -> bool: ...  # let the host's link lose all packets

    def mend_link(self, host: str) -> bool: ...  # let the host's cut link carry packets again

    def slow_link(self, host: str, megabits: float) -> bool: ...  # limit the host's link, in megabits a second

    def speed_up_link(self, host: str) -> bool: ...  # end the limit of the host's link


class SharedVolume(Protocol):
    """The volume that all machines share."""

    def hang(self, seconds: float) -> bool: ...  # make writers wait

    def resume(self) -> bool: ...  # let waiting writers continue


class FaultInjector:
    """Apply faults to the descendants of this process. With `network`, faults also hit network links. With `volume`,
    faults also hit the shared volume. `fault_counts` maps each kind of fault to the number of applied faults. A fault
    is not counted if no suitable process, link or volume existed.
    """

    def __init__(
        self,
        disturbance: Disturbance,
        network: HostLinks | None,
        print_line: Callable[[str], None],
        volume: SharedVolume | None = None,
    ) -> None:
        self._disturbance, self._network, self._print_line, self._volume = disturbance, network, print_line, volume
        self._frozen_pids: set[int] = set()
        self._cut_hosts: set[str] = set()
        self._slow_hosts: set[str] = set()
        self._counts: Counter[str] = Counter()

    @property
    def fault_counts(self) -> Counter[str]:
        return self._counts + self._disturbance.counts

    def run(self, planned_faults: Sequence[Fault], duration: float) -> None:
        """Apply the planned faults for `duration` seconds, then return. The embedded cloud also loses, doubles and
        delays events until `end_faults`. The caller must call `end_faults` after `run`, because some faults may last.
        """
        self._disturbance.set(HUNT_DISTURBANCE)
        began_at, entry_numbers = time.monotonic(), itertools.count()
        due_actions: list[tuple[float, int, Callable[[], Undo | None]]] = [
            (fault.at, next(entry_numbers), partial(self._apply_fault, fault)) for fault in planned_faults
        ]
        heapq.heapify(due_actions)
        while due_actions and due_actions[0][0] < duration:
            due_seconds, _, action = heapq.heappop(due_actions)
            time.sleep(max(0.0, began_at + due_seconds - time.monotonic()))
            if pending_undo := action():
                undo_delay_seconds, undo_action = pending_undo
                heapq.heappush(
                    due_actions, (time.monotonic() - began_at + undo_delay_seconds, next(entry_numbers), undo_action)
                )
        time.sleep(max(0.0, began_at + duration - time.monotonic()))

    def end_faults(self) -> None:
        """End all faults that still last. `end_faults` may be called more than once."""
        self._disturbance.set(DisturbanceRates())
        for pid in sorted(self._frozen_pids):
            self._thaw_process(pid)
        for host in sorted(self._cut_hosts):
            self._mend_link(host)
        for host in sorted(self._slow_hosts):
            self._speed_up_link(host)
        self._resume_volume()

    def _apply_fault(self, fault: Fault) -> Undo | None:
        match fault:
            case ProcessKill():
                self._signal_process(fault.victim, fault.pick, signal.SIGKILL, "killed")
                return None
            case ProcessFreeze():
                pid = self._signal_process(fault.victim, fault.pick, signal.SIGSTOP, "frozen")
                return None if pid is None else (fault.seconds, partial(self._thaw_process, pid))
            case ServiceThrottle():
                self._print_line(
                    f"fault: {fault.fraction:.0%} of the calls to {fault.service} throttled for {fault.seconds:.1f} s"
                )
                self._disturbance.set(replace(HUNT_DISTURBANCE, throttled={fault.service: fault.fraction}))
                return fault.seconds, partial(self._disturbance.set, HUNT_DISTURBANCE)
            case LinkCut():
                host = self._disturb_link(
                    fault.pick, self._cut_hosts, lambda links, host: links.cut_link(host), "link cut", "is cut off"
                )
                return None if host is None else (fault.seconds, partial(self._mend_link, host))
            case LinkSlowdown():
                megabits = fault.megabits
                host = self._disturb_link(
                    fault.pick,
                    self._slow_hosts,
                    lambda links, host: links.slow_link(host, megabits),
                    "link slowed",
                    f"has a link of {megabits:g} Mb/s",
                )
                return None if host is None else (fault.seconds, partial(self._speed_up_link, host))
            case VolumeStall():
                if self._volume is None or not self._volume.hang(fault.seconds):
                    return None
                self._counts["volume stalled"] += 1
                self._print_line(f"fault: the volume hangs for {fault.seconds:.1f} s")
                return fault.seconds, self._resume_volume

    def _resume_volume(self) -> None:
        if self._volume is not None and self._volume.resume():
            self._print_line("the volume accepts writes again")

    def _disturb_link(
        self, pick: float, disturbed_hosts: set[str], disturb: Callable[[HostLinks, str], bool], kind: str, effect: str
    ) -> str | None:
        """Disturb the network link of a host that is not yet in `disturbed_hosts`, by a call of `disturb`. Returns the
        host, or None if no link was disturbed.
        """
        candidate_hosts = [] if self._network is None else sorted(set(self._network.hosts) - disturbed_hosts)
        if (
            self._network is None
            or not candidate_hosts
            or not disturb(self._network, host := candidate_hosts[int(pick * len(candidate_hosts))])
        ):
            return None
        disturbed_hosts.add(host)
        self._counts[kind] += 1
        self._print_line(f"fault: {host} {effect}")
        return host

    def _speed_up_link(self, host: str) -> None:
        self._slow_hosts.discard(host)
        if self._network is not None and self._network.speed_up_link(host):
            self._print_line(f"the link of {host} is fast again")

    def _mend_link(self, host: str) -> None:
        self._cut_hosts.discard(host)
        if self._network is not None and self._network.mend_link(host):
            self._print_line(f"{host} is connected again")

    def _signal_process(self, victim: Victim, pick: float, signal_number: signal.Signals, effect: str) -> int | None:
        candidate_pids = [pid for pid in census.victim_processes(os.getpid())[victim] if pid not in self._frozen_pids]
        if not candidate_pids:
            return None
        pid = candidate_pids[int(pick * len(candidate_pids))]
        try:
            os.kill(pid, signal_number)
        except ProcessLookupError:
            return None
        if signal_number is signal.SIGSTOP:
            self._frozen_pids.add(pid)
        self._counts[f"{victim} {effect}"] += 1
        self._print_line(f"fault: {victim} process {pid} {effect}")
        return pid

    def _thaw_process(self, pid: int) -> None:
        self._frozen_pids.discard(pid)
        if any(pid in pids for pids in census.victim_processes(os.getpid()).values()):
            os.kill(pid, signal.SIGCONT)
            self._print_line(f"process {pid} continues")
