"""The coordinator's decisions: when a generation starts, changes at a boundary, goes on after a loss. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from training.formation import Formation
from training.generation import Reason, settle
from training.knowledge import Phase
from training.orders import Announce, Order, ToWorker
from training.origin import Origin, choose_origin
from training.planning import choose_scheduler, segment_record
from training.protocol import Position, Verdict
from training.release import Release


@dataclass
class Decisions(Formation):
    def _advance(self, now: float) -> list[Order]:
        """Take the next decision if all that it needs is there; a member without a connection would miss it, and is waited for or lost soon."""
        if any(instance in self.roster.members for instance in self.roster.absent):
            return []
        if self.phase is Phase.WAITING:
            return self._start(now)
        if self.phase is Phase.PARKED:
            return self._form_from_parked(now)
        if self.phase is Phase.PREPARING:
            return self._go_when_prepared(now)
        if self.phase is Phase.TRAINING and self.checked_in and set(self.checked_in) >= set(self.roster.members):
            return self._at_boundary(now)
        if self.phase is Phase.RELEASING and self.release and self.release.verdict is not None:
            return self._released(self.release, self.release.verdict, now)
        return []

    def _call_back(self) -> list[Order]:
        return [] if self.phase is Phase.OVER else self.roster.call_back(self._wanted() or ())

    def _start(self, now: float) -> list[Order]:
        wanted = [instance for instance in (self._wanted() or ()) if instance in self.roster.nodes]
        expected = [instance for instance in wanted if not self.roster.cools(instance)]
        if wanted and not expected and not self.roster.stood:
            last = self.roster.records[wanted[0]].reason
            return self._fail(f"no worker could start, on any node; the last time on {wanted[0]}: {last}", now)
        missing = [instance for instance in expected if instance not in self.roster.standing]
        enough = len(expected) >= (self.options.workers if self.number == 0 else self.options.limits.min_workers)
        if (missing or not enough) and now - self.since < self.options.clocks.patience:
            return []
        decision = settle((), self.roster.ready(), self._wanted(), self.options.limits, self._group_at_hand(now))
        self._pause(None if decision.members else decision.reason, now)
        if not decision.members:
            return []
        ready = {instance: self.roster.standing[instance] for instance in decision.members}
        origin = choose_origin(self.commit, self.line, ready, self.spoiled)
        self.trouble.got_to(origin.position.step)
        return self._form(decision.members, origin, (), now)

    def _group_at_hand(self, now: float) -> bool:
        return choose_scheduler(self._servers()) is not None and now >= self.trouble.until

    def _at_boundary(self, now: float) -> list[Order]:
        assert self.generation is not None
        positions = {check_in.position for check_in in self.checked_in.values()}
        if len(positions) > 1:
            return self._fail(f"workers stand at different positions: {sorted(p.step for p in positions)}", now)
        position = positions.pop()
        orders: list[Order] = []
        if position != self.position:
            orders.append(segment_record(self.number, self.position, position, self.checked_in))
            self.position = position
        if not self.roster.members:
            return [*orders, *self._restart("every worker was lost at the boundary", now)]
        if position.epoch >= self.roster.epochs:
            return [*orders, *self._end(now)]
        current = self._present()
        intact = len(current) == len(self.generation.members)
        if position.offset and intact and not self._may_change_in_mid_epoch():
            self.checked_in.clear()
            return orders + self._proceed(committer=current[0])
        decision = settle(current, self.roster.ready(), self._wanted_next(), self.options.limits, self._group_at_hand(now), intact)
        self._pause(None if decision.members else decision.reason, now)
        if decision.members is None:
            return orders
        if intact and decision.members == self.generation.instances:
            self.checked_in.clear()
            return orders + self._proceed(committer=current[0])
        return orders + self._form(decision.members, Origin(position), current, now)

    def _may_change_in_mid_epoch(self) -> bool:
        if self.options.boundary == "segment" or self.target is None:
            return True
        return any(instance in self.target.leave_by for instance in self.roster.members)

    # ---- after a loss

    def _release(self, instance: str, reason: str, now: float) -> list[Order]:
        """A worker is lost while the others train: they void its step and go on in their processes, if the servers are still there."""
        # A host whose supervisor is away for a moment lives as long as its worker does.
        servers_lost = [host for host in self.group_hosts if host not in self.roster.nodes and host not in self.roster.members]
        if self.options.recovery == "restart" or servers_lost or not self.roster.members:
            return self._restart(f"worker on {instance} lost: {reason}", now)
        self.phase, self.since = Phase.RELEASING, now
        self.release = Release(self.number, now)
        return [Announce("releasing", {"instance": instance, "generation": self.number, "reason": reason}), *self.release.ask(self.roster.members)]

    def _released(self, release: Release, position: Position, now: float) -> list[Order]:
        """Everybody is free: tell the verdict, and form the next generation as soon as a group can be had."""
        orders: list[Order] = [ToWorker(instance, Verdict(generation=release.generation, position=position)) for instance in self._present()]
        orders.append(Announce("released", {"generation": self.number, "position": position.model_dump(), "seconds": now - release.began}))
        return orders + self._park(position, now) + self._advance(now)

    def _park(self, position: Position, now: float) -> list[Order]:
        self.position, self.release, self.checked_in = position, None, {}
        self.holders = frozenset(self.roster.members)
        self.phase, self.since, self.group_hosts, self.hosts_absent = Phase.PARKED, now, {}, {}
        return []

    def _form_from_parked(self, now: float) -> list[Order]:
        current = self._present()
        if not current:
            return self._restart("every worker that held the state was lost", now)
        if self.position.epoch >= self.roster.epochs:
            return self._end(now)
        decision = settle(current, self.roster.ready(), self._wanted_next(), self.options.limits, self._group_at_hand(now), intact=False)
        self._pause(None if decision.members else decision.reason, now)
        return self._form(decision.members, Origin(self.position), current, now) if decision.members else []

    def _paused_for_too_long(self, now: float) -> list[Order]:
        """A start without any failure may wait for its nodes as long as they take: their preparation has bounds of its own."""
        began = self.number > 0 or any(record.failures for record in self.roster.records.values())
        waits = self.phase in (Phase.WAITING, Phase.PARKED, Phase.TRAINING) and self.paused in (Reason.BELOW_MINIMUM, Reason.NO_GROUP)
        if not (began and waits) or self.paused is None or now - self.paused_since < self.options.pause_seconds:
            return []
        return self._fail(f"{self.paused.value}, for {self.options.pause_seconds:.0f} s", now)
