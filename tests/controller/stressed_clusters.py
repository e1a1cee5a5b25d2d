"""Two clusters to which anything may happen: people, machines, groups, losses, duplicates, throttles, crashes between
any two effects. What must hold all the same is said elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dyntrain.controller.adapters.items import tick_item, wake_of
from dyntrain.controller.contract.errors import ControllerError
from dyntrain.controller.contract.messages import STATUS_TAG, Target
from dyntrain.controller.loops.converge import converge
from dyntrain.controller.loops.resync import resync
from fakes import ELASTIC, Member
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from shaky_world import Crash, ShakyWorld, throttled

CLUSTERS = ("demo", "other")
ANY = st.randoms(use_true_random=False)
FUSE = st.none() | st.integers(0, 15) | st.integers(0, 70)
HOW = st.sampled_from(["dies", "throttled", "late", "dies at an effect", "throttled at an effect"])


class StressedClusters(RuleBasedStateMachine):
    """Of two clusters only the first has a job; nobody touches the second one's first node, the neighbour."""

    def __init__(self) -> None:
        super().__init__()
        self.world = ShakyWorld(*CLUSTERS, max_workers=64)
        self.queue: list[dict[str, Any]] = []
        self.reports: dict[str, dict[str, Any]] = {}
        self.attempts: dict[str, int] = {}
        self.cluster: dict[str, str] = {}
        self.number = 0
        self.training: tuple[str, ...] = ()
        self.obeyed = 0
        self.revisions: dict[str, dict[int, tuple[str, ...]]] = {cluster: {} for cluster in CLUSTERS}
        self.half_done = False

    @initialize(job=st.booleans(), last_fuse=st.integers(0, 15))
    def base_and_neighbour(self, job: bool, last_fuse: int) -> None:
        """Without a job nobody but the tick wakes the controller once the nodes have nothing new to say. The last batch
        dies too.
        """
        world = self.world
        self.job, self.last_fuse = job, last_fuse
        self.base = world.launch(1000, base=True, NodeType="Master")
        self.neighbour = world.launch(2000, "other")
        self.reports[self.base] = world.report(self.base)
        world.hear(self.reports[self.base], world.report(self.neighbour, cluster="other"))
        world.resync()
        self.kept_tags = {key: value for key, value in world.machines[self.neighbour].tags.items() if key != STATUS_TAG}

    # ---- what happens to the machines

    def elastic(self, draw: Any, *states: str) -> str | None:
        living = [name for name in self.cluster if self.world.machines[name].state in states]
        return draw.choice(sorted(living)) if living else None

    @rule(kind=st.sampled_from(["owned", "by hand", "member"]), cluster=st.sampled_from(["demo", "demo", "other"]))
    def launch(self, kind: str, cluster: str) -> None:
        self.number += 1
        world = self.world
        if kind == "member":
            instance = world.member(self.number, cluster)
            self.queue.append(world.hook_event(instance, "launch", f"up-{self.number}", cluster))
        else:
            instance = world.launch(self.number, cluster, owned=kind == "owned", elastic=False)
            self.queue.append(world.tag(instance, cluster))
        self.cluster[instance] = cluster

    @rule(draw=ANY, present=st.booleans(), lag=st.booleans(), delivered=st.booleans())
    def tag(self, draw: Any, present: bool, lag: bool, delivered: bool) -> None:
        """`delivered`: the event arrives at once, before describe calls show the change."""
        instance = self.elastic(draw, "running", "stopped")
        if instance is None:
            return
        if lag:
            self.world.changing(instance)
        event = self.world.tag(instance, self.cluster[instance], present=present)
        if delivered:
            self.world.take_in(event)
        else:
            self.queue.append(event)

    @rule(draw=ANY, outcome=st.sampled_from(["prepared", "prepared", "prepared", "prepare_failed"]))
    def bootstrap(self, draw: Any, outcome: str) -> None:
        instance = self.elastic(draw, "running")
        if instance is not None:
            self.world.wait(1.0)  # nor does a bootstrap report at the instant of its machine's start
            self.attempts[instance] = self.attempts.get(instance, 0) + 1
            report = self.world.report(
                instance, outcome, self.cluster[instance], attempt=self.attempts[instance], reason="x"
            )
            self.reports[instance] = report
            self.queue.append(report)

    @rule(draw=ANY, state=st.sampled_from(["stopped", "terminated"]))
    def lose_machine(self, draw: Any, state: str) -> None:
        instance = self.elastic(draw, "running", "stopped", "shutting-down")
        if instance is None or (
            state == "stopped"
            and (instance in self.world.membership or self.world.machines[instance].state != "running")
        ):
            return
        self.world.machines[instance].state = state  # type: ignore[assignment]
        self.reports.pop(instance, None)
        if state == "terminated":
            self.world.membership.pop(instance, None)
        self.queue.append(self.world.state_event(instance, state))  # type: ignore[arg-type]

    @rule(draw=ANY)
    def start_again(self, draw: Any) -> None:
        instance = self.elastic(draw, "stopped")
        if instance is not None:
            # no machine stops and starts again within a moment: what it said before is from before
            self.world.wait(1.0)
            self.world.machines[instance].state = "running"
            self.world.machines[instance].launched_at = self.world.now
            self.queue += [self.world.state_event(instance, "pending"), self.world.state_event(instance, "running")]

    @rule(draw=ANY)
    def scale_in(self, draw: Any) -> None:
        members = [name for name, member in self.world.membership.items() if member.phase != "terminating"]
        if members:
            instance = draw.choice(sorted(members))
            self.world.membership[instance] = Member(self.world.membership[instance].group, "terminating", "terminate")
            self.queue.append(self.world.hook_event(instance, "terminate", f"down-{instance}", self.cluster[instance]))

    # ---- what happens to the messages and to the controller

    @rule(draw=ANY, times=st.sampled_from([0, 1, 1, 1, 2]), fuse=st.none() | st.integers(0, 3), how=HOW)
    def deliver(self, draw: Any, times: int, fuse: int | None, how: str) -> None:
        """One waiting event, in any order; lost, once or twice; perhaps to a handler that dies."""
        if self.queue:
            event = self.queue.pop(draw.randrange(len(self.queue)))
            for _ in range(times):
                self.shaken(fuse, how, lambda event=event: self.world.take_in(event))

    @precondition(lambda self: bool(self.world.stream))
    @rule(
        draw=ANY,
        fuse=FUSE,
        how=HOW,
        again=st.booleans(),
        meanwhile=st.none() | st.integers(0, 50),
        who=st.sampled_from(["event", "converge"]),
    )
    def run_stream(self, draw: Any, fuse: int | None, how: str, again: bool, meanwhile: int | None, who: str) -> None:
        """A batch of any of the records, in any order; what fails is delivered again or lost. Others may act in its
        midst.
        """
        records, self.world.stream = self.world.stream, []
        draw.shuffle(records)
        batch, later = records[: len(records) // 2 + 1], records[len(records) // 2 + 1 :]
        if meanwhile is not None:
            self.world.meanwhile = (
                meanwhile,
                self.an_event if who == "event" else lambda: self.converge(batch + later),
            )
        done = self.shaken(fuse, how, lambda: self.converge(batch))
        self.world.meanwhile = None
        self.world.stream += later + (batch if again and not done else [])

    def an_event(self) -> None:
        if self.queue:
            self.world.take_in(self.queue.pop(0))

    def converge(self, records: list[dict[str, Any]]) -> None:
        woken = [record for record in records if record["NewImage"]["wake"]["BOOL"]]
        converge(self.world.ports, self.world.registry, wake_of(woken), ELASTIC)

    @rule(fuse=st.integers(0, 15) | st.integers(0, 70), how=HOW)
    def catch_up_and_die(self, fuse: int, how: str) -> None:
        """All that is known is looked at in one batch, which dies somewhere and is never delivered again."""
        self.world.take_in(*self.queue)
        self.queue.clear()
        records, self.world.stream = self.world.stream, []
        self.shaken(fuse, how, lambda: self.converge(records))
        self.world.stream.clear()

    @rule()
    def the_index_falls_behind(self) -> None:
        """What it shows of the nodes stays as it is now, until it catches up."""
        nodes: Any = self.world.ports.nodes
        nodes.lagging = dict(nodes.get_many(self.cluster))

    @rule()
    def the_index_catches_up(self) -> None:
        self.world.ports.nodes.lagging = {}  # type: ignore[attr-defined]

    @rule(draw=ANY, blind=st.sampled_from(["index", "describe calls"]))
    def a_change_of_mind_that_a_read_does_not_show(self, draw: Any, blind: str) -> None:
        """Untagged and tagged again, both told at once; then all nodes are looked at by a read that stands between the
        two.
        """
        instance = self.elastic(draw, "running")
        if instance is None:
            return
        cluster = self.cluster[instance]
        self.world.take_in(self.world.tag(instance, cluster, present=False))
        self.world.changing(instance)
        if blind == "index":
            self.the_index_falls_behind()
        self.world.take_in(self.world.tag(instance, cluster))
        if blind != "index":
            self.shaken(None, "dies", lambda: resync(self.world.ports, self.world.registry, ELASTIC))
        self.shaken(
            None, "dies", lambda: self.converge([{"NewImage": tick_item(cluster, self.world.now, surveyed=False)}])
        )

    @rule()
    def an_hour_in_which_all_is_well(self) -> None:
        self.the_index_catches_up()
        self.world.wait(3600)
        self.world.remember_wishes()
        self.world.hear(*self.queue, *self.heartbeat())
        self.queue.clear()
        self.world.resync()

    @rule(fuse=FUSE, how=HOW)
    def resync_as_scheduled(self, fuse: int | None, how: str) -> None:
        self.shaken(fuse, how, lambda: resync(self.world.ports, self.world.registry, ELASTIC))

    @rule(seconds=st.sampled_from([0.5, 5.0, 31.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.wait(seconds)

    @precondition(lambda self: self.job)
    @rule(delivered=st.booleans())
    def boundary(self, delivered: bool) -> None:
        """The coordinator obeys the newest target it can read; its report may be lost."""
        report = self.obey()
        if delivered:
            self.queue.append(report)

    def obey(self) -> dict[str, Any]:
        target = self.published("demo")
        if target is not None and target.revision >= self.obeyed:
            assert target.members is not None
            standing = [name for name in target.members if self.world.machines[name].state == "running"]
            self.training, self.obeyed = tuple(standing), target.revision
        return self.world.job_event(*self.training, revision=self.obeyed)

    def published(self, cluster: str) -> Target | None:
        text = self.world.parameters.get(f"/dyntrain/{cluster}/target")
        return Target.model_validate_json(text) if text is not None else None

    def heartbeat(self) -> list[dict[str, Any]]:
        return [self.obey()] if self.job else []

    def shaken(self, fuse: int | None, how: str, act: Callable[[], object]) -> bool:
        self.world.remember_wishes()
        at_an_effect = how.endswith("effect")
        self.world.fuse, self.world.late, self.world.effects = (
            fuse % 6 if at_an_effect and fuse is not None else fuse,
            how == "late",
            at_an_effect,
        )
        self.world.bomb = Crash() if how.startswith("dies") else throttled()
        try:
            act()
        except (Crash, ControllerError):
            self.half_done = True
            return False
        finally:
            self.world.fuse, self.world.late, self.world.effects = None, False, False
        return True

    # ---- what must hold
