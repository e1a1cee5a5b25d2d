"""Losses: who is lost when, by what is heard or because a bound has passed, and what that leads to. Pure.

What a loss costs the others depends on where the generation is; `_lose` has the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from training.generation import Reason
from training.knowledge import Phase
from training.orders import Announce, DropWorker, Order
from training.recovery import Recovery
from training.roster import Away


@dataclass
class Losses(Recovery):
    """Each method takes `now` (seconds) and returns the orders, in the order in which they are to be carried out."""

    # ---- what is heard

    def node_lost(self, instance: str, now: float) -> list[Order]:
        """The supervisor's connection is gone. Its worker may still train: the worker's own connection tells."""
        self.roster.nodes.pop(instance, None)
        orders: list[Order] = [Announce("node_lost", {"instance": instance})]
        if instance in self.group_hosts:
            self.hosts_absent[instance] = now
        if self.phase is Phase.RELEASING and instance in self.group_hosts and instance not in self.roster.members:
            orders += self._restart(f"{instance} was lost with its ps-lite server", now)
        return orders

    def _group_lost(self, reason: str, now: float) -> list[Order]:
        """ps-lite processes of the generation are gone: before anybody is inside them that costs nothing."""
        if self.phase is Phase.PREPARING:
            return self._take_back(reason, now)
        return self._restart(reason, now) if self.phase in (Phase.FORMING, Phase.TRAINING, Phase.RELEASING) else []

    def worker_disconnected(self, instance: str, pid: int, now: float) -> list[Order]:
        """The connection is gone; the process may be too, which its supervisor would say, or it connects again."""
        if pid == self.roster.pid(instance):
            if instance in self.roster.standing:
                self.roster.standing.pop(instance)
                self.roster.away[instance] = Away(pid, now, now + self.options.clocks.patience, stood=True)
                return [Announce("worker_lost", {"instance": instance, "pid": pid, "reason": "connection closed"})]
            self.roster.absent.setdefault(instance, now)
        return []

    def worker_lost(self, instance: str, pid: int | None, reason: str, now: float) -> list[Order]:
        """The worker's connection or process is gone; a notice about an earlier process (`pid`) changes nothing."""
        if pid is None or pid != self.roster.pid(instance):
            return []
        self.roster.absent.pop(instance, None)
        if self.roster.leaving.pop(instance, None):
            return [DropWorker(instance, reason), *self._finish(now)]
        if self.roster.standing.pop(instance, None):
            lost = Announce("worker_lost", {"instance": instance, "pid": pid, "reason": reason})
            return [DropWorker(instance, reason), lost, *self._revive(instance, pid, reason, now)]
        return self._lose([instance], reason, now)

    def _lose(self, instances: list[str], reason: str, now: float) -> list[Order]:
        """Members are lost, all at once: what follows depends on where the generation is."""
        orders: list[Order] = []
        for instance in instances:
            self.roster.absent.pop(instance, None)
            pid = self.roster.members.pop(instance).pid
            orders += [DropWorker(instance, reason), Announce("worker_lost", {"instance": instance, "pid": pid, "reason": reason})]
            orders += self._revive(instance, pid, reason, now)
        named = ", ".join(instances)
        match self.phase:
            case Phase.TRAINING if not set(instances) <= set(self.checked_in):
                return orders + self._release(named, reason, now)
            case Phase.RELEASING if self.release is not None and self.roster.members:
                orders += self.release.lost(self.roster.members)
            case Phase.PREPARING:
                orders += self._take_back(f"worker on {named} lost: {reason}", now)
            case Phase.RELEASING | Phase.FORMING:
                orders += self._restart(f"worker on {named} lost: {reason}", now)
            case Phase.RECOVERING:
                self.lost.update(instances)
                orders += self._recover(now)
            case _:  # at a boundary their last step is in, so nobody can be blocked: the next generation just goes without them
                pass
        return orders + self._advance(now)

    # ---- what is not heard

    def tick(self, now: float) -> list[Order]:
        """Everything that has a bound. One of them at a time: the next tick sees what is left."""
        clocks = self.options.clocks
        if self.phase is Phase.RECOVERING:
            return self._recover(now)
        if instance := self.roster.overdue(clocks.reconnect, now):
            return self.worker_lost(instance, self.roster.pid(instance), f"no connection for {clocks.reconnect:.1f} s", now)
        if vanished := self.roster.vanished(now):
            return self._did_not_connect(*vanished, now)
        if hosts := [host for host, since in self.hosts_absent.items() if now - since > clocks.liveness]:
            self.hosts_absent = {}
            return self._group_lost(f"no word from {', '.join(hosts)}, where ps-lite processes run, for {clocks.liveness:.0f} s", now)
        waited = now - self.since
        match self.phase:
            case Phase.PREPARING if waited > clocks.formation:
                return self._lose(sorted(set(self.roster.members) - self.prepared), f"not prepared to form within {clocks.formation:.0f} s", now)
            case Phase.FORMING if waited > clocks.formation:
                absent = ", ".join(sorted(set(self.roster.members) - set(self.formed)))
                return self._restart(f"generation {self.number} not formed within {clocks.formation:.0f} s; waited for {absent}", now)
            case Phase.RELEASING if waited > clocks.release:
                return self._restart(f"the survivors were not free within {clocks.release:.0f} s", now)
            case Phase.TRAINING:
                if orders := self._stuck(now):
                    return orders
            case Phase.OVER if self.awaited and waited > clocks.patience:
                self.awaited = set()
        if self.roster.leaving and waited > clocks.formation:
            instance = next(iter(self.roster.leaving))
            return self.worker_lost(instance, self.roster.pid(instance), f"did not leave within {clocks.formation:.0f} s", now)
        return self.roster.readmit(now, self.paused is Reason.BELOW_MINIMUM) + self._finish(now) + self._paused_for_too_long(now) + self._advance(now)

    def _did_not_connect(self, instance: str, away: Away, now: float) -> list[Order]:
        self.roster.away.pop(instance)
        waited = f"{now - away.since:.0f} s"
        started = f"started, and not connected to the coordinator within {waited}: it hangs, or its script ends without joining; see its log"
        reason = f"its connection closed, and it was not back within {waited}" if away.stood else started
        lost = Announce("worker_lost", {"instance": instance, "pid": away.pid, "reason": reason})
        return [lost, *self._revive(instance, away.pid, reason, now), *self._advance(now)]

    def _stuck(self, now: float) -> list[Order]:
        """Living workers that do not get on: those who keep the others waiting at a boundary are lost; else one keeps them waiting inside a step."""
        clocks = self.options.clocks
        late = sorted(set(self.roster.members) - set(self.checked_in))
        if self.checked_in and late and now - self.since > clocks.boundary:
            return self._lose(late, f"not at the boundary within {clocks.boundary:.0f} s of the first", now)
        if late and now - max(self.heard, self.since) > clocks.progress:
            return self._release("unknown", f"nobody made progress for {clocks.progress:.0f} s", now)
        return []
