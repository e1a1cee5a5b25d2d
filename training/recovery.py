"""A coordinator that came back: it reads its journal, hears from each member where that is, and goes on from there. Pure.

The journal says which generation was settled last; the members know how far it came, and say so when they connect. Nothing is decided before all of
them are back or known to be lost, and the hosts of the generation's ps-lite processes are back too, or patience has run out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from training.decisions import Decisions
from training.generation import Generation, Member
from training.knowledge import Options, Phase
from training.orders import Announce, Order, ToWorker
from training.protocol import Go, Position, Proceed, Verdict, WorkerHello

TRAINED = frozenset({"trains", "waits", "aborted", "free"})  # stages after the generation's first word to proceed
INSIDE = frozenset({"creates", "formed"})


@dataclass
class Recovery(Decisions):
    @classmethod
    def recovered(cls, options: Options, transfer_token: Callable[[], str], journal: Sequence[dict[str, Any]], now: float) -> Self:
        """The session as its journal leaves it; without a journal, one of a job that begins."""
        session = cls(options, transfer_token, since=now)
        for record in journal:
            match record["kind"]:
                case "generation":
                    session._settled_before(record)
                case "commit":
                    session.note_commit(Position(**record["position"]), record["name"])
                case "commit_unreadable":
                    session.drop_commit()
                case "restart":
                    session.generation, session.void_until = None, record["generation"]
                case "taken_back":  # nobody held the state: there is nobody to wait for
                    session.generation = None
                case "finished" | "failed":
                    session.outcome = record["kind"]
                    session.position = Position(**record["position"]) if "position" in record else session.position
        if session.outcome:
            session.phase, session.generation, session.awaited = Phase.OVER, None, set(session.pids)
        elif session.generation is not None:
            session.phase = Phase.RECOVERING
        return session

    def _settled_before(self, record: dict[str, Any]) -> None:
        self.number, self.position = record["number"], Position(**record["position"])
        self.line = self.line.settled(self.number, self.position)
        self.holders, self.pids, self.group_hosts = frozenset(record["holders"]), record["pids"], record["hosts"]
        members = tuple(Member(i, joined_epoch=self.position.epoch, joined_at=record["at"]) for i in record["members"])
        source = next((i for i in record["members"] if i in self.holders), record["members"][0])
        self.generation = Generation(self.number, members, self.position, source)

    def _returned(self, hello: WorkerHello) -> bool:
        """Whether this is a member of the journaled generation; another process in a member's place says that the member is lost."""
        instance = hello.instance_id
        if self.generation is None or instance not in self.generation.instances:
            return False
        if hello.pid != self.pids[instance]:
            self.lost.add(instance)
            return False
        self.roster.absent.pop(instance, None)
        self.roster.members[instance] = hello
        return True

    def _recover(self, now: float) -> list[Order]:
        """Go on once everything that there is has come back."""
        if self.phase is not Phase.RECOVERING or self.generation is None:
            return []
        missing = set(self.generation.instances) - set(self.roster.members) - self.lost
        if not self.roster.members and self.target is not None and not missing & set(self._wanted() or ()):
            missing = set()  # whoever is wanted is lost, so the group is broken: nobody else need be heard
        away = [host for host in self.group_hosts if host not in self.roster.nodes]
        if (
            missing or (away and self.roster.members) or set(self.roster.absent) & set(self.roster.members)
        ) and now - self.since <= self.options.clocks.patience:
            return []
        lost = sorted(set(self.generation.instances) - set(self.roster.members))
        stages = {instance: hello.stage for instance, hello in self.roster.members.items()}
        orders: list[Order] = [Announce("recovered", {"generation": self.number, "stages": stages, "lost": lost})]
        orders += self._from_evidence(lost, now)
        self.lost = set()
        self.hosts_absent = {host: now for host in self.group_hosts if host not in self.roster.nodes}
        return orders + self._advance(now)

    def _from_evidence(self, lost: list[str], now: float) -> list[Order]:
        if not self.roster.members:
            return self._restart("no member came back to the coordinator", now)
        current = {hello.stage for hello in self.roster.members.values() if hello.generation == self.number}
        behind = [i for i, hello in self.roster.members.items() if hello.generation != self.number]
        broken = [
            host for host, attempt in self.group_hosts.items() if host not in self.roster.nodes or self.roster.nodes[host].hello.attempt != attempt
        ]
        if current & TRAINED:
            if broken:
                return self._restart(f"{', '.join(broken)}, where ps-lite processes ran, did not come back", now)
            if "free" in current:
                return self._verdict_again(now)
            if lost or "aborted" in current:
                return self._release(", ".join(lost) or "a worker", "it did not come back to the coordinator", now)
            return self._train_on(now)
        if current & INSIDE:
            if lost or behind or broken:
                return self._restart(f"{', '.join(lost or behind or broken)} was lost while generation {self.number} was formed", now)
            self.phase, self.since = Phase.FORMING, now
            waiting = [i for i, hello in self.roster.members.items() if hello.stage == "prepares"]
            return [*(ToWorker(instance, Go(generation=self.number)) for instance in waiting), *self._finish_formation(now)]
        if lost or behind or broken:
            return self._void(f"the coordinator was away while generation {self.number} was settled", now)
        self.phase, self.since = Phase.PREPARING, now
        return []

    def _train_on(self, now: float) -> list[Order]:
        """All members train, wait at a boundary, or have formed and missed the word to proceed."""
        assert self.generation is not None
        told = [hello.position for hello in self.roster.members.values() if hello.position is not None]
        self.position = self.proceeded = max(told, key=lambda position: position.step)
        self.phase, self.since, self.heard, self.active = Phase.TRAINING, now, now, set(self.roster.members)
        missed = {i: self.generation.position for i, hello in self.roster.members.items() if hello.stage == "formed"}
        missed |= {i: self.proceeded for i, said in self.checked_in.items() if said.position == self.proceeded}
        self.checked_in = {i: said for i, said in self.checked_in.items() if i not in missed}
        return [ToWorker(instance, Proceed(generation=self.number, position=position)) for instance, position in missed.items()]

    def _verdict_again(self, now: float) -> list[Order]:
        """The one before had told the verdict to some; whoever has it has left the group, so everybody is free to."""
        position = next(hello.position for hello in self.roster.members.values() if hello.stage == "free" and hello.position is not None)
        orders: list[Order] = [ToWorker(instance, Verdict(generation=self.number, position=position)) for instance in self.roster.members]
        return orders + self._park(position, now)

    def _void(self, reason: str, now: float) -> list[Order]:
        """Nobody has begun to form what was settled last. Who was told to abort before has not heard that everybody is free."""
        told = [
            ToWorker(instance, Verdict(generation=hello.generation or 0, position=self.position))
            for instance, hello in self.roster.members.items()
            if hello.stage == "aborted"
        ]
        return [*told, *self._take_back(reason, now)]
