"""How a generation comes to be and how it ends: ordered, gone, formed; taken back, restarted, over. Pure.

Members first prepare (leave the old group, lay the state ready) and wait; when all have, the word to go takes them into ps-lite together. A
member lost before that word costs the others nothing: the generation is taken back. After it nobody can be freed from ps-lite's barriers,
so all are restarted; their state is safe by then.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from training.generation import Cause, Generation, Member, Reason, cause_of
from training.knowledge import Knowledge, Phase
from training.orders import Announce, DropWorker, Journal, Order, Over, ToNode, ToWorker
from training.origin import Origin
from training.planning import Node, choose_scheduler, plan_formation, plan_group, slowest
from training.protocol import Go, Leave, Proceed, RestartWorker, Retire, StopGroup


@dataclass
class Formation(Knowledge):
    """Each method returns the orders of one decision, in the order in which they are to be carried out."""

    def _current(self, instance: str, generation: int) -> bool:
        return self.generation is not None and generation == self.generation.number and instance in self.roster.members

    def _revive(self, instance: str, pid: int, reason: str, now: float) -> list[Order]:
        return [] if self.phase is Phase.OVER else self.roster.revive(instance, pid, reason, now)

    def _wanted(self) -> Sequence[str] | None:
        return None if self.target is None else (self.target.members or ())

    def _replaced(self) -> set[str]:
        """Base nodes that their successors relieve: at the next formation, once the successor can serve, or because they train no more."""
        replacing = self.target.replacing if self.target is not None else {}
        return {old for old, new in replacing.items() if old not in self.roster.members or self._can_serve(new)}

    def _can_serve(self, instance: str) -> bool:
        node = self.roster.nodes.get(instance)
        here = instance in self.roster.members or instance in self.roster.ready()
        return here and instance in (self._wanted() or ()) and node is not None and node.holds(2)

    def _wanted_next(self) -> Sequence[str] | None:
        """As wanted, except that a base node stays, and its successor does not join, until both can be exchanged at one boundary."""
        wanted = self._wanted()
        if wanted is None or self.target is None:
            return None
        replaced = self._replaced()
        kept = {old: new for old, new in self.target.replacing.items() if old not in replaced}
        waiting = {new for new in kept.values() if new not in self.roster.members}
        return [*(instance for instance in wanted if instance not in waiting), *(old for old in kept if old not in wanted)]

    def _servers(self) -> dict[str, Node]:
        """The nodes among which ps-lite processes are given out."""
        replaced = self._replaced()
        return {instance: node for instance, node in self.roster.nodes.items() if instance not in replaced}

    def _present(self) -> list[str]:
        """The connected members, in the generation's order."""
        return [instance for instance in self.generation.instances if instance in self.roster.members] if self.generation else []

    def _pause(self, reason: Reason | None, now: float) -> None:
        if reason is not None and self.paused is None:
            self.paused_since = now
        self.paused = reason

    # ---- towards a generation

    def _form(self, members: tuple[str, ...], origin: Origin, holders: Collection[str], now: float) -> list[Order]:
        """Settle the next generation and order it. `holders` have the state in memory; nobody: the origin says where it is."""
        servers = self._servers()
        scheduler = choose_scheduler(servers)
        assert scheduler is not None
        previous = {member.instance_id: member for member in self.generation.members} if self.generation and holders else {}
        self.number += 1
        position = origin.position
        self.position, self.holders = position, frozenset(holders) & frozenset(members)
        self.line = self.line.settled(self.number, position)
        self.generation = Generation(
            number=self.number,
            members=tuple(previous.get(i) or Member(i, joined_epoch=position.epoch, joined_at=now) for i in members),
            position=position,
            source=origin.source or next((i for i in members if i in self.holders), members[0]),
        )
        self.roster.leaving.update({instance: hello for instance, hello in self.roster.members.items() if instance not in members})
        self.roster.members = {i: self.roster.members[i] if i in self.roster.members else self.roster.standing.pop(i) for i in members}
        self.pids = {i: hello.pid for i, hello in self.roster.members.items()}
        self.active &= set(members)
        self.phase, self.since = Phase.PREPARING, now
        self.prepared, self.checked_in, self.formed, self.first_steps, self.progress = set(), {}, {}, {}, {}
        self._pause(None, now)

        group = plan_group(self.number, servers, scheduler, len(members))
        self.group_orders = group.orders
        self.group_hosts = {host: self.roster.nodes[host].hello.attempt for host in group.hosts}
        self.hosts_absent = {}
        for host in group.hosts:
            self.roster.nodes[host].group = None
        self.forms = plan_formation(
            self.generation,
            self.roster.members,
            self.holders or {self.generation.source},
            group.environment,
            self.transfer_token(),
            origin,
            self.options.checkpoint_dir,
            self.options.segment_steps,
        )
        form = [ToWorker(instance, message) for instance, message in self.forms.items()]
        leave = [ToWorker(instance, Leave(generation=self.number - 1, reason="not in the target")) for instance in self.roster.leaving]
        joining = [i for i in members if i not in previous]
        cause = cause_of(previous, self.holders, self.roster.leaving, origin)
        return [*self._settled(origin, joining, cause, now), *group.orders, *leave, *form]

    def _settled(self, origin: Origin, joining: list[str], cause: Cause, now: float) -> list[Order]:
        """What is journaled and announced of a generation before anything is ordered."""
        assert self.generation is not None
        source = self.roster.members[self.generation.source]
        agreed = source.model_dump(include={"samples", "global_batch", "seed", "batching"})
        job = {"kind": "job", "job": self.options.job, **agreed, "at": now}
        start = {"position": self.position.model_dump(), "commit": origin.commit, "safe": origin.source}
        at = {"number": self.number, "members": list(self.generation.instances), **start, "at": now}
        recovery = {"pids": self.pids, "holders": sorted(self.holders), "hosts": self.group_hosts}
        orders: list[Order] = [Journal(job)] if self.number == 1 else []
        orders.append(Journal({"kind": "generation", **at, **recovery}))
        changes = {"cause": cause.value, "joining": joining, "leaving": sorted(self.roster.leaving)}
        return [*orders, Announce("forming", {**at, **changes})]

    def _go_when_prepared(self, now: float) -> list[Order]:
        """From here on nobody can be called back."""
        if self.phase is not Phase.PREPARING or not self.roster.members or not self.prepared >= set(self.roster.members):
            return []
        self.phase, self.since = Phase.FORMING, now
        return [ToWorker(instance, Go(generation=self.number)) for instance in self.roster.members]

    def _finish_formation(self, now: float) -> list[Order]:
        """When all have formed with equal state, they step. Leavers are not waited for: leaving needs nobody's help."""
        if self.phase is not Phase.FORMING or set(self.formed) < set(self.roster.members):
            return []
        digests = {formed.digest for formed in self.formed.values()}
        if len(digests) > 1:
            found = ", ".join(f"{instance} {formed.digest}" for instance, formed in self.formed.items())
            return self._fail(f"workers differ in state after forming generation {self.number}: {found}", now)
        self.phase, self.since, self.heard = Phase.TRAINING, now, now
        self.trouble.formed()
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

    def _group_again(self, instance: str) -> list[Order]:
        """The order to start ps-lite processes, to a node that connected again: without them the workers would wait out the formation's bound."""
        due = self.phase in (Phase.PREPARING, Phase.FORMING) and instance in self.group_hosts
        return [order for order in self.group_orders if order.instance_id == instance] if due else []

    def _proceed(self, committer: str) -> list[Order]:
        self.proceeded = self.position
        return [
            ToWorker(instance, Proceed(generation=self.number, position=self.position, commit=instance == committer))
            for instance in self.roster.members
        ]

    def _stop_groups(self, generation: int) -> list[Order]:
        return [ToNode(i, StopGroup(generation=generation)) for i, node in self.roster.nodes.items() if node.hello.base] if generation else []

    # ---- back from one

    def _take_back(self, reason: str, now: float) -> list[Order]:
        """Nobody has begun to form: who holds the state waits for the next order in its process, joiners stand by again."""
        assert self.generation is not None
        hopeless = self.trouble.not_formed(now)
        orders: list[Order] = [Announce("taken_back", {"generation": self.number, "reason": reason}), *self._stop_groups(self.number)]
        members = self.roster.members
        self.roster.members = {instance: hello for instance, hello in members.items() if instance in self.holders}
        for instance, hello in members.items():
            if instance not in self.holders:
                self.roster.absent.pop(instance, None)
                self.roster.stand(hello)
        self.generation = replace(self.generation, members=tuple(m for m in self.generation.members if m.instance_id in self.roster.members))
        self.forms, self.prepared, self.group_hosts, self.hosts_absent = {}, set(), {}, {}
        self.phase, self.since = Phase.PARKED if self.roster.members else Phase.WAITING, now
        if hopeless:
            return [*orders, *self._fail(f"{hopeless}; the last: {reason}", now)]
        if self.phase is Phase.WAITING:
            self.generation = None
            orders.append(Journal({"kind": "taken_back", "generation": self.number, "reason": reason, "at": now}))
        return orders

    def _restart(self, reason: str, now: float) -> list[Order]:
        """Nobody can be trusted to be free of ps-lite: all members' processes go, the next generation starts from what is safe outside them."""
        commit = self.commit[0].model_dump() if self.commit else None
        orders: list[Order] = [Announce("restart", {"generation": self.number, "reason": reason, "commit": commit})]
        orders.append(Journal({"kind": "restart", "generation": self.number, "reason": reason, "at": now}))
        if self.phase is Phase.FORMING:
            self.trouble.not_formed(now)
        hopeless = self.trouble.restarted(now)
        killed = self.roster.dissolve()
        self.roster.revived.update({instance: hello.pid for instance, hello in killed.items()})
        self.void_until, self.proceeded, self.group_hosts, self.hosts_absent, self.holders = self.number, None, {}, {}, frozenset()
        self.generation = self.release = None
        self.checked_in, self.formed, self.first_steps, self.progress, self.active = {}, {}, {}, {}, set()
        self.forms, self.prepared, self.lost = {}, set(), set()
        self.phase, self.since = Phase.WAITING, now
        for instance, hello in killed.items():
            orders.append(DropWorker(instance, reason))
            if instance in self.roster.nodes:
                orders.append(ToNode(instance, RestartWorker(pid=hello.pid, reason=reason)))
        orders += self._stop_groups(self.number)
        return orders + (self._fail(f"{hopeless}; the last: {reason}", now) if hopeless else [])

    # ---- the end

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
        if self.phase is not Phase.OVER or self.roster.leaving or self.awaited or self.closed:
            return []
        self.closed = True
        orders: list[Order] = [ToNode(instance, Retire(reason=f"job {self.outcome}")) for instance in self.roster.nodes]
        return [*orders, Over(self.outcome)]
