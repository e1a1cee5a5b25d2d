"""The coordinator's decisions: when a generation starts, changes at a boundary, goes on after a loss, or ends. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from training.generation import Generation, Member, settle
from training.knowledge import START, Knowledge, Phase
from training.orders import Announce, DropWorker, Journal, Order, Over, ToNode, ToWorker
from training.planning import choose_scheduler, plan_formation, plan_group, segment_record, slowest
from training.protocol import (
    Leave,
    Position,
    Proceed,
    RestartWorker,
    Retire,
    StopGroup,
    Verdict,
)
from training.release import Release


@dataclass
class Decisions(Knowledge):
    """Each method returns the orders of one decision, in the order in which they are to be carried out."""

    def _current(self, instance: str, generation: int) -> bool:
        return self.generation is not None and generation == self.generation.number and instance in self.roster.members

    def _revive(self, instance: str, pid: int, reason: str, now: float) -> list[Order]:
        return [] if self.phase is Phase.OVER else self.roster.revive(instance, pid, reason, now)

    def _call_back(self) -> list[Order]:
        return [] if self.phase is Phase.OVER else self.roster.call_back(self._wanted() or ())

    @property
    def _formed(self) -> bool:
        """Whether ps-lite processes of the generation are needed now."""
        return self.phase in (Phase.FORMING, Phase.TRAINING, Phase.RELEASING)

    def _advance(self, now: float) -> list[Order]:
        """Take the next decision if all that it needs is there; a member without a connection would miss it, and is waited for or lost soon."""
        if any(instance in self.roster.members for instance in self.roster.absent):
            return []
        if self.phase is Phase.WAITING:
            return self._start(now)
        if self.phase is Phase.TRAINING and self.checked_in and set(self.checked_in) >= set(self.roster.members):
            return self._at_boundary(now)
        if self.phase is Phase.RELEASING and self.release and self.release.verdict is not None:
            return self._after_release(self.release, self.release.verdict, now)
        return []

    def _start(self, now: float) -> list[Order]:
        expected = [instance for instance in (self.target.members or ()) if instance in self.roster.nodes] if self.target else []
        missing = [instance for instance in expected if instance not in self.roster.standing]
        enough = len(expected) >= (self.options.workers if self.number == 0 else self.options.limits.min_workers)
        if (missing or not enough) and now - self.since < self.options.start_grace:
            return []
        decision = settle((), self.roster.standing, self._wanted(), self.options.limits, choose_scheduler(self.roster.nodes) is not None)
        self.paused = None if decision.members else decision.reason
        if not decision.members:
            return []
        start, commit = self.commit or (START, None)
        return self._form(decision.members, start, commit, fresh=True, now=now)

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
        current = [instance for instance in self.generation.instances if instance in self.roster.members]
        if position.offset and len(current) == len(self.generation.members) and not self._may_change_in_mid_epoch():
            self.checked_in.clear()
            return orders + self._proceed(committer=current[0])
        intact = len(current) == len(self.generation.members)
        decision = settle(current, self.roster.standing, self._wanted(), self.options.limits, choose_scheduler(self.roster.nodes) is not None, intact)
        self.paused = None if decision.members else decision.reason
        if decision.members is None:
            return orders
        if intact and decision.members == self.generation.instances:
            self.checked_in.clear()
            return orders + self._proceed(committer=current[0])
        return orders + self._form(decision.members, position, None, fresh=False, now=now)

    def _release(self, instance: str, reason: str, now: float) -> list[Order]:
        """A worker is lost while the others train: they void its step and go on in their processes, if the servers are still there."""
        servers_lost = [host for host in self.group_hosts if host not in self.roster.nodes]
        if self.options.recovery == "restart" or servers_lost or not self.roster.members:
            return self._restart(f"worker on {instance} lost: {reason}", now)
        self.phase, self.since = Phase.RELEASING, now
        self.release = Release(self.number, now)
        return [Announce("releasing", {"instance": instance, "generation": self.number, "reason": reason}), *self.release.ask(self.roster.members)]

    def _after_release(self, release: Release, position: Position, now: float) -> list[Order]:
        """Everybody is free: tell the verdict once, and form the next generation as soon as a group can be had."""
        assert self.generation is not None
        orders: list[Order] = []
        current = [instance for instance in self.generation.instances if instance in self.roster.members]
        if not release.told:
            release.told = True
            orders += [ToWorker(instance, Verdict(generation=self.number, position=position)) for instance in current]
            orders.append(Announce("released", {"generation": self.number, "position": position.model_dump(), "seconds": now - release.began}))
        if position.epoch >= self.roster.epochs:
            self.position, self.release = position, None
            return orders + self._end(now)
        decision = settle(current, self.roster.standing, self._wanted(), self.options.limits, choose_scheduler(self.roster.nodes) is not None, False)
        self.paused = None if decision.members else decision.reason
        if decision.members is None:
            return orders
        self.release = None
        return orders + self._form(decision.members, position, None, fresh=False, now=now)

    def _may_change_in_mid_epoch(self) -> bool:
        if self.options.boundary == "segment" or self.target is None:
            return True
        return any(instance in self.target.leave_by for instance in self.roster.members)

    def _wanted(self) -> Sequence[str] | None:
        return None if self.target is None else (self.target.members or ())

    def _form(self, members: tuple[str, ...], position: Position, commit: str | None, fresh: bool, now: float) -> list[Order]:
        """Settle the next generation and order it. `fresh`: nobody holds the state, the source makes it or loads the commit."""
        scheduler = choose_scheduler(self.roster.nodes)
        assert scheduler is not None
        previous = {member.instance_id: member for member in self.generation.members} if self.generation and not fresh else {}
        staying = [instance for instance in members if instance in previous and instance in self.roster.members]
        self.number += 1
        self.position = position
        self.generation = Generation(
            number=self.number,
            members=tuple(previous.get(i) or Member(i, joined_epoch=position.epoch, joined_at=now) for i in members),
            position=position,
            source=(staying or list(members))[0],
        )
        self.roster.leaving.update({instance: self.roster.members[instance] for instance in self.roster.members if instance not in members})
        self.roster.members = {i: self.roster.members[i] if i in staying else self.roster.standing.pop(i) for i in members}
        self.active &= set(members)
        self.phase, self.since = Phase.FORMING, now
        self.checked_in, self.formed, self.first_steps, self.progress = {}, {}, {}, {}

        source = self.roster.members[self.generation.source]
        agreed = source.model_dump(include={"samples", "global_batch", "seed", "batching"})
        job = {"kind": "job", "job": self.options.job, **agreed, "at": now}
        at = {"number": self.number, "members": list(members), "position": position.model_dump(), "commit": commit, "at": now}
        changes = {"joining": [i for i in members if i not in previous], "leaving": sorted(self.roster.leaving)}
        orders: list[Order] = [Journal(job)] if self.number == 1 else []
        orders += [Journal({"kind": "generation", **at}), Announce("forming", {**at, **changes})]
        group = plan_group(self.number, self.roster.nodes, scheduler, len(members))
        self.group_hosts = {host: self.roster.nodes[host].hello.attempt for host in group.hosts}
        self.hosts_absent = {}
        for host in group.hosts:
            self.roster.nodes[host].group = None
        orders += group.orders
        orders += [ToWorker(instance, Leave(generation=self.number - 1, reason="not in the target")) for instance in self.roster.leaving]
        holders = {self.generation.source} if fresh else set(staying)
        options = self.options
        return orders + plan_formation(
            self.generation,
            self.roster.members,
            holders,
            group.environment,
            self.transfer_token(),
            commit,
            options.checkpoint_dir,
            options.segment_steps,
        )

    def _finish_formation(self, now: float) -> list[Order]:
        """When all have formed with equal state, they step. Leavers are not waited for: leaving needs nobody's help."""
        if self.phase is not Phase.FORMING or set(self.formed) < set(self.roster.members):
            return []
        digests = {formed.digest for formed in self.formed.values()}
        if len(digests) > 1:
            found = ", ".join(f"{instance} {formed.digest}" for instance, formed in self.formed.items())
            return self._fail(f"workers differ in state after forming generation {self.number}: {found}", now)
        self.phase, self.since = Phase.TRAINING, now
        assert self.generation is not None
        orders = self._proceed(committer=self.generation.source)
        orders += self._stop_groups(self.number - 1)
        fields = {
            "generation": self.number,
            "members": list(self.generation.instances),
            "digest": digests.pop(),
            "phases": slowest(formed.phases for formed in self.formed.values()),
            "background": slowest(formed.background for formed in self.formed.values()),
        }
        return [*orders, Announce("formed", fields)]

    def _proceed(self, committer: str) -> list[Order]:
        self.proceeded = self.position
        return [ToWorker(instance, Proceed(generation=self.number, commit=instance == committer)) for instance in self.roster.members]

    def _stop_groups(self, generation: int) -> list[Order]:
        return [ToNode(i, StopGroup(generation=generation)) for i, node in self.roster.nodes.items() if node.hello.base] if generation else []

    def _restart(self, reason: str, now: float) -> list[Order]:
        """Nobody can be trusted to be free of ps-lite: all members' processes go, the next generation starts from the last commit."""
        commit = self.commit[0].model_dump() if self.commit else None
        orders: list[Order] = [Announce("restart", {"generation": self.number, "reason": reason, "commit": commit})]
        orders.append(Journal({"kind": "restart", "generation": self.number, "reason": reason, "at": now}))
        killed = self.roster.dissolve()
        self.roster.revived.update({instance: hello.pid for instance, hello in killed.items()})
        self.void_until, self.proceeded, self.group_hosts, self.hosts_absent = self.number, None, {}, {}
        self.generation = self.release = None
        self.checked_in, self.formed, self.first_steps, self.progress, self.active = {}, {}, {}, {}, set()
        self.phase, self.since = Phase.WAITING, now
        for instance, hello in killed.items():
            orders.append(DropWorker(instance, reason))
            if instance in self.roster.nodes:
                orders.append(ToNode(instance, RestartWorker(pid=hello.pid, reason=reason)))
        return orders + self._stop_groups(self.number)

    def _end(self, now: float) -> list[Order]:
        orders: list[Order] = [
            Journal({"kind": "finished", "position": self.position.model_dump(), "at": now}),
            Announce("finished", {"position": self.position.model_dump()}),
        ]
        orders += [
            ToWorker(instance, Leave(generation=self.number, reason="job finished")) for instance in [*self.roster.members, *self.roster.standing]
        ]
        self.roster.leaving, self.roster.members, self.phase, self.since, self.outcome = dict(self.roster.members), {}, Phase.OVER, now, "finished"
        return orders + self._finish(now)

    def _fail(self, reason: str, now: float) -> list[Order]:
        orders: list[Order] = [Journal({"kind": "failed", "reason": reason, "at": now}), Announce("failed", {"reason": reason})]
        orders += [DropWorker(instance, reason) for instance in {**self.roster.members, **self.roster.leaving, **self.roster.standing}]
        self.roster.members, self.roster.leaving, self.roster.standing = {}, {}, {}
        self.phase, self.outcome = Phase.OVER, "failed"
        return orders + self._finish(now)

    def _finish(self, now: float) -> list[Order]:
        """The job is over once the last worker has left."""
        if self.phase is not Phase.OVER or self.roster.leaving:
            return []
        orders: list[Order] = [ToNode(instance, Retire(reason=f"job {self.outcome}")) for instance in self.roster.nodes]
        return [*orders, Over(self.outcome)]
