"""A cluster with a job that trains, to which everything happens out of turn: messages come late, twice and in any
order, runs of the controller pass one another and die, the index and describe calls are behind.

The job loses nobody, its coordinator is never silent, and no machine fails: what an instance's status follows is the
wish of people alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dyntrain.controller.adapters.items import tick_item, wake_of
from dyntrain.controller.cli.answers.query import snapshot, summary
from dyntrain.controller.contract.messages import STATUS_TAG, Target
from dyntrain.controller.contract.reports import JobMember
from dyntrain.controller.core.decisions.arrows import Cause, unexplained_statuses
from dyntrain.controller.core.planning import TAGGED_STATUSES
from dyntrain.controller.loops.converge import converge
from dyntrain.controller.loops.resync import resync
from fakes import ELASTIC, Member
from overlapping_runs import LIFE_SECONDS, WHOLE, OverlappingWorld, Run
from shaky_world import Crash, throttled

LEASE = 15.0


class Overtaken:
    """Each method named in `moves` is one thing that happens; numbers choose among what there is, whatever they are."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self.world = OverlappingWorld("demo", max_workers=64)
        self.waiting: list[dict[str, Any]] = []
        self.runs: list[Run] = []
        self.nodes: list[str] = []
        self.training: tuple[str, ...] = ()
        self.known, self.listed, self.heard = 0, tuple[str, ...](), self.world.now
        self.shown: dict[tuple[str, str], list[tuple[float, Any]]] = {}  # by who looked, and instance
        self.disturbed = False  # something was lost, died, or was not shown: only a tick sets it right
        self._begin(kinds)

    def _begin(self, kinds: tuple[str, ...]) -> None:
        """All of them but the `new` ones train already."""
        world = self.world
        self.base = world.launch(1000, base=True, NodeType="Master")
        world.hear(world.report(self.base))
        for delivered in (True, False):
            for kind in kinds:
                if delivered == (not kind.startswith("new")):
                    self._launch(kind.removeprefix("new "))
            if delivered:
                world.hear(*self.waiting)
                self.waiting.clear()
                world.resync()
                self.target_read()
                self.boundary(delivered=True, forming=False, leaving=False)

    def _launch(self, kind: str) -> None:
        number = len(self.nodes) + 1
        if kind == "member":
            instance = self.world.member(number)
            self.waiting.append(self.world.hook_event(instance, "launch", f"up-{number}"))
        else:
            instance = self.world.launch(number, owned=kind == "owned", elastic=False)
            self.waiting.append(self.world.tag(instance))
        self.nodes.append(instance)
        self.world.because(instance, Cause.JOIN_REQUESTED)
        self.waiting.append(self.world.report(instance))

    # ---- what people, the job and AWS do; what is `delivered` is heard of at once, else it waits to be delivered

    def change_of_mind(self, which: int, delivered: bool, behind: str, calls: int) -> None:
        """Of a person about an instance's tag, or, once, about the size of a group. `behind`: what still shows it as it
        was.
        """
        living = [name for name in self.nodes if self._running(name)]
        instance = living[which % len(living)] if living else ""
        member = self.world.membership.get(instance)
        if not living or (member is not None and member.phase == "terminating"):
            return
        if behind == "reads":
            self.world.changing(instance)
        elif behind == "index":
            self.index(behind=True)
        present = member is None and ELASTIC.of("demo") not in self.world.machines[instance].tags
        self.world.because(instance, Cause.JOIN_REQUESTED if present else Cause.MUST_LEAVE)
        if member is None:
            self._heard(delivered, calls, self.world.tag(instance, present=present))
        else:
            self.world.membership[instance] = Member("demo-workers", "terminating", "terminate")
            self._heard(delivered, calls, self.world.hook_event(instance, "terminate", f"down-{instance}"))

    def target_read(self, delivered: bool = True, calls: int = WHOLE) -> None:
        """The coordinator reads the target that is published now. What it says is that it knows of it."""
        text = self.world.parameters.get("/dyntrain/demo/target")
        target = Target.model_validate_json(text) if text is not None else None
        if target is not None and target.revision >= self.known and target.members is not None:
            self.known, self.listed = target.revision, target.members
        self._heard(delivered, calls, self._report())

    def boundary(self, delivered: bool, forming: bool, leaving: bool, calls: int = WHOLE) -> None:
        """It obeys the target that it knows of. On the way it says that who joins is not active yet, and who leaves has
        not left yet. `calls`: of the first pass that is woken.
        """
        members = tuple(name for name in self.listed if self._running(name))
        stay, joining = [[n for n in members if (n in self.training) is there] for there in (True, False)]
        left = [name for name in self.training if name not in members]
        reports = [self._report(stay, joining, left)] if forming else []
        self.training = members
        reports += [self._report(members, (), left)] if leaving else []
        for number, report in enumerate([*reports, self._report()]):
            self._heard(delivered, WHOLE if number else calls, report)

    def _report(
        self, active: Sequence[str] | None = None, forming: Sequence[str] = (), left: Sequence[str] = ()
    ) -> dict[str, Any]:
        """As `training.session.job.reported` makes it."""
        active = self.training if active is None else active
        members = [
            {"instance_id": name, "rank": rank, "active": name not in forming, "joined_epoch": 0, "joined_at": 1.0}
            for rank, name in enumerate([*active, *forming, *left])
        ]
        for member in members[len(members) - len(left) :]:
            member |= {"leaving": True, "joined_at": 0.0}
        return self.world.job_event(revision=self.known, members=tuple(map(JobMember.model_validate, members)))

    def _heard(self, delivered: bool, calls: int, event: dict[str, Any]) -> None:
        """What is heard wakes a pass, which stands after so many calls."""
        if delivered:
            self.world.take_in(event)
            self.run("pass", calls)
        else:
            self.waiting.append(event)

    def _running(self, instance: str) -> bool:
        return self.world.machines[instance].state == "running"

    def aws(self) -> None:
        """What was ended shuts down, with its events; groups go on with what was answered."""
        for name, member in list(self.world.membership.items()):
            if member.phase == "launching" and member.waits is None:
                member.phase = "in_service"
            elif member.phase == "terminating" and member.waits is None:
                self.world.machines[name].state = "shutting-down"
                del self.world.membership[name]
        for name in self.nodes:
            if self.world.machines[name].state == "shutting-down":
                self.world.machines[name].state = "terminated"
                self.waiting.append(self.world.state_event(name, "terminated"))

    def time(self, seconds: float) -> None:
        """No handler outlives its timeout."""
        self.world.wait(seconds)
        if self.world.now - self.heard > LEASE:
            self.heard = self.world.now
            self.world.take_in(self._report())
        for run in self.standing:
            if self.world.now - run.began > LIFE_SECONDS:
                self._kill(run)

    def index(self, behind: bool) -> None:
        """What it shows of the nodes stays as it is now, until it catches up."""
        nodes: Any = self.world.ports.nodes
        nodes.lagging = dict(nodes.get_many(self.nodes)) if behind else {}
        self.disturbed |= behind

    # ---- what becomes of messages and runs

    def deliver(self, which: int, times: int, kept: bool, calls: int) -> None:
        """One of those that wait; lost, once, twice, or (`kept`) once more much later."""
        if not self.waiting:
            return
        event = self.waiting[which % len(self.waiting)]
        if not (kept and times):
            self.waiting.remove(event)
        self.disturbed |= not times
        for _ in range(times):
            self._heard(delivered=True, calls=calls, event=event)

    def run(self, what: str, calls: int) -> None:
        """It begins, and stands after so many calls. A pass is on what the stream holds; each look begins when the one
        before is over.
        """
        world = self.world
        if what == "look":
            if not any(run.what == what for run in self.standing):
                self._start(what, lambda: self._look("slow"), calls)
        elif what == "resync":
            self._start(what, lambda: resync(world.ports, world.registry, ELASTIC), calls)
        else:
            batch = [{"NewImage": tick_item("demo", world.now, surveyed=False)}]
            if what == "pass":
                batch = [record for record in world.stream if record["NewImage"]["wake"]["BOOL"]]
                world.stream.clear()
            if batch:
                self._start(what, lambda: self._converge(batch), calls)

    def _start(self, what: str, act: Callable[[], object], calls: int) -> None:
        run = Run(self.world, what, act)
        self.runs.append(run)
        run.step(calls)

    def _converge(self, batch: list[dict[str, Any]]) -> None:
        """What fails is delivered again; a tick is not."""
        try:
            converge(self.world.ports, self.world.registry, wake_of(batch), ELASTIC)
        except BaseException:
            self.disturbed = True
            self.world.stream += [record for record in batch if "surveyed" not in record["NewImage"]]
            raise

    def _look(self, who: str) -> None:
        cluster = summary(snapshot(self.world.ports, self.world.registry, "demo", ELASTIC), gone=True)
        for row in cluster["nodes"]:
            if not row["base"] and row["status"] in TAGGED_STATUSES:
                self.shown.setdefault((who, row["instance"]), []).append((self.world.now, row["status"]))

    @property
    def standing(self) -> list[Run]:
        self.runs = [run for run in self.runs if not run.over]
        return self.runs

    def go_on(self, which: int, calls: int) -> None:
        if runs := self.standing:
            runs[which % len(runs)].step(calls)

    def die(self, which: int, how: str) -> None:
        """Or one of its calls fails."""
        if runs := self.standing:
            self._kill(runs[which % len(runs)], Crash() if how == "dies" else throttled())

    def _kill(self, run: Run, bomb: BaseException | None = None) -> None:
        self.disturbed = True
        run.step(1, bomb or Crash())
        run.step()

    # ---- what must hold

    def check(self) -> None:
        self._look("often")
        tags = {("tag", instance): status for instance, status in self.world.tags.items()}
        for (where, instance), statuses in (tags | self.shown).items():
            unexpected = unexplained_statuses(statuses, self.world.causes[instance])
            assert not unexpected, (where, instance, *unexpected, statuses)

    def end(self) -> None:
        """All runs come to their end, and all that waits is heard. Where nothing was lost that is enough; else a tick
        sets it right, once those who died cannot come back.
        """
        for run in list(self.standing):
            run.step()
        self.index(behind=False)
        for event in self.waiting:
            self.world.take_in(event)
        self.world.settle()
        if self.disturbed:
            self.time(LIFE_SECONDS + 10)
            self.world.resync()
        self.check()
        for instance in self.nodes:
            status, _ = self.world.standing(instance)
            tag = self.world.machines[instance].tags.get(STATUS_TAG)
            assert tag == status or status not in TAGGED_STATUSES, (instance, status, tag, "the tag is out of date")
