"""Clusters under random events, losses, duplicates, throttles and crashes between any two effects (Hypothesis).

Whatever happened: after one quiet resync (two when the first would remove most members, which waits for a second reading) the controller and
AWS agree with what is true of the machines. And while it happens: nothing is ended that is known to be wanted, a revision never goes back and
means one membership, and what is noted as published is what the coordinator can read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fakes import SUFFIX, Machine, Member, instance_id
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from shaky_world import EFFECTS, Crash, ShakyWorld, throttled

from controller.adapters.items import tick_item, wake_of
from controller.contract import OWNER_TAG, STATUS_TAG, Target, elastic_tag
from controller.converge import converge
from controller.errors import ControllerError
from controller.resync import resync
from controller.target import Membership

CLUSTERS = ("demo", "other")
ANY = st.randoms(use_true_random=False)
FUSE = st.none() | st.integers(0, 15) | st.integers(0, 70)
HOW = st.sampled_from(["dies", "throttled", "late", "dies at an effect", "throttled at an effect"])


class ClustersUnderStress(RuleBasedStateMachine):
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
        """Without a job nobody but the tick wakes the controller once the nodes have nothing new to say. The last batch dies too."""
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

    @rule(draw=ANY, present=st.booleans(), lag=st.booleans(), told=st.booleans())
    def tag(self, draw: Any, present: bool, lag: bool, told: bool) -> None:
        """`told`: the event arrives at once, before describe calls show the change."""
        instance = self.elastic(draw, "running", "stopped")
        if instance is None:
            return
        if lag:
            self.world.changing(instance)
        event = self.world.tag(instance, self.cluster[instance], present=present)
        if told:
            self.world.take_in(event)
        else:
            self.queue.append(event)

    @rule(draw=ANY, outcome=st.sampled_from(["prepared", "prepared", "prepared", "prepare_failed"]))
    def bootstrap(self, draw: Any, outcome: str) -> None:
        instance = self.elastic(draw, "running")
        if instance is not None:
            self.world.wait(1.0)  # nor does a bootstrap report at the instant of its machine's start
            self.attempts[instance] = self.attempts.get(instance, 0) + 1
            report = self.world.report(instance, outcome, self.cluster[instance], attempt=self.attempts[instance], reason="x")
            self.reports[instance] = report
            self.queue.append(report)

    @rule(draw=ANY, state=st.sampled_from(["stopped", "terminated"]))
    def lose_machine(self, draw: Any, state: str) -> None:
        instance = self.elastic(draw, "running", "stopped", "shutting-down")
        if instance is None or (state == "stopped" and (instance in self.world.membership or self.world.machines[instance].state != "running")):
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
            self.world.wait(1.0)  # no machine stops and starts again within a moment: what it said before is from before
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
    @rule(draw=ANY, fuse=FUSE, how=HOW, again=st.booleans(), meanwhile=st.none() | st.integers(0, 50), who=st.sampled_from(["event", "converge"]))
    def run_stream(self, draw: Any, fuse: int | None, how: str, again: bool, meanwhile: int | None, who: str) -> None:
        """A batch of any of the records, in any order; what fails is delivered again or lost. Others may act in its midst."""
        records, self.world.stream = self.world.stream, []
        draw.shuffle(records)
        batch, later = records[: len(records) // 2 + 1], records[len(records) // 2 + 1 :]
        if meanwhile is not None:
            self.world.meanwhile = (meanwhile, self.an_event if who == "event" else lambda: self.converge(batch + later))
        done = self.shaken(fuse, how, lambda: self.converge(batch))
        self.world.meanwhile = None
        self.world.stream += later + (batch if again and not done else [])

    def an_event(self) -> None:
        if self.queue:
            self.world.take_in(self.queue.pop(0))

    def converge(self, records: list[dict[str, Any]]) -> None:
        woken = [record for record in records if record["NewImage"]["wake"]["BOOL"]]
        converge(self.world.ports, self.world.registry, wake_of(woken), SUFFIX)

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
        self.world.ports.nodes.lagging = dict(self.world.ports.nodes.get_many(self.cluster))  # type: ignore[attr-defined]

    @rule()
    def the_index_catches_up(self) -> None:
        self.world.ports.nodes.lagging = {}  # type: ignore[attr-defined]

    @rule(draw=ANY, blind=st.sampled_from(["index", "describe calls"]))
    def a_change_of_mind_that_a_read_does_not_show(self, draw: Any, blind: str) -> None:
        """Untagged and tagged again, both told at once; then all nodes are looked at by a read that stands between the two."""
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
            self.shaken(None, "dies", lambda: resync(self.world.ports, self.world.registry, SUFFIX))
        self.shaken(None, "dies", lambda: self.converge([{"NewImage": tick_item(cluster, self.world.now)}]))

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
        self.shaken(fuse, how, lambda: resync(self.world.ports, self.world.registry, SUFFIX))

    @rule(seconds=st.sampled_from([0.5, 5.0, 31.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.wait(seconds)

    @precondition(lambda self: self.job)
    @rule(told=st.booleans())
    def boundary(self, told: bool) -> None:
        """The coordinator obeys the newest target it can read; its report may be lost."""
        report = self.obey()
        if told:
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

    def shaken(self, fuse: int | None, how: str, act: Callable[[], object]) -> bool:
        self.world.remember_wishes()
        at_an_effect = how.endswith("effect")
        self.world.fuse, self.world.late, self.world.effects = fuse % 6 if at_an_effect and fuse is not None else fuse, how == "late", at_an_effect
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

    @invariant()
    def the_neighbour_is_left_alone(self) -> None:
        if hasattr(self, "neighbour"):
            machine = self.world.machines[self.neighbour]
            assert machine.state == "running"
            assert {key: value for key, value in machine.tags.items() if key != STATUS_TAG} == self.kept_tags

    @invariant()
    def a_revision_never_goes_back_and_means_one_membership(self) -> None:
        for cluster in CLUSTERS:
            stored = self.world.table.get(("cluster", cluster))
            if stored is not None:
                membership: Membership = stored[0].membership
                known = self.revisions[cluster]
                assert membership.revision >= max(known, default=0)
                assert known.setdefault(membership.revision, membership.members) == membership.members

    @invariant()
    def what_is_noted_as_published_can_be_read_unless_somebody_died_over_it(self) -> None:
        for cluster in CLUSTERS:
            stored = self.world.table.get(("cluster", cluster))
            if stored is not None and not self.half_done and stored[0].published == stored[0].membership.revision > 0:
                target = self.published(cluster)
                assert target is not None
                assert target.revision == stored[0].published

    def teardown(self) -> None:
        if not hasattr(self, "base"):
            return
        world = self.world
        self.catch_up_and_die(self.last_fuse, "dies")
        self.the_index_catches_up()
        world.wait(70)
        self.aws_goes_on()
        self.everybody_repeats()
        if world.resync().held:
            world.wait(60)
            self.everybody_repeats()
            assert world.resync().held == ()
        for _ in range(5):
            world.wait(2)
            self.aws_goes_on()
            world.hear(*self.heartbeat())
        for cluster in CLUSTERS:
            self.check(cluster)
        world.wait(20)
        before = sum(call[0] in EFFECTS for call in world.calls)
        world.hear(*self.heartbeat())
        world.resync()
        assert sum(call[0] in EFFECTS for call in world.calls) == before, world.calls[-30:]

    def everybody_repeats(self) -> None:
        reports = [report for name, report in self.reports.items() if self.world.machines[name].state == "running"]
        self.world.hear(*reports, *self.heartbeat())

    def heartbeat(self) -> list[dict[str, Any]]:
        return [self.obey()] if self.job else []

    def aws_goes_on(self) -> None:
        """Groups end what was abandoned or answered, and tell of terminations that wait."""
        world = self.world
        abandoned = {call[1] for call in world.calls if call[0] == "groups.complete" and call[4] == "ABANDON"}
        for name, member in list(world.membership.items()):
            if name in abandoned or (member.phase == "terminating" and member.waits is None):
                world.machines[name].state = "terminated"
                del world.membership[name]
                world.hear(world.state_event(name, "terminated"))
            elif member.phase == "terminating":
                world.hear(world.hook_event(name, "terminate", f"down-{name}", self.cluster[name]))
            elif member.phase == "launching" and member.waits is None:
                member.phase = "in_service"

    def wanted(self, name: str, machine: Machine) -> bool:
        report = self.reports.get(name)
        member = self.world.membership.get(name)
        ready = report is not None and report["detail"]["outcome"] == "prepared" and report["detail"]["at"] >= machine.launched_at
        stays = machine.state == "running" and (member is None or member.phase != "terminating")
        return ready and stays and elastic_tag(self.cluster[name]) in machine.tags

    def check(self, cluster: str) -> None:
        world = self.world
        membership: Membership = world.ports.clusters.get(cluster).membership
        elastic = {name: world.machines[name] for name, home in self.cluster.items() if home == cluster}
        expected = {self.base if cluster == "demo" else self.neighbour, *(name for name, machine in elastic.items() if self.wanted(name, machine))}
        assert set(membership.members) == expected
        assert (world.target(cluster).revision, world.target(cluster).digest) == (membership.revision, membership.target.digest)
        for name, machine in elastic.items():
            heard_of = world.ports.nodes.get(name) is not None
            assert heard_of or not {OWNER_TAG, elastic_tag(cluster)} & set(machine.tags)
            if machine.state in ("terminated", "shutting-down") or not heard_of:
                continue
            status, reason = world.standing(name, cluster)
            if name in expected:
                assert status == ("ADDED" if self.job and cluster == "demo" else "ADD_QUEUED"), (name, reason)
            if status not in ("WAITING", "GONE") and reason != "NEVER_ASKED":
                assert machine.tags.get(STATUS_TAG) == status, (name, status, reason, machine)
            if elastic_tag(cluster) not in machine.tags and machine.tags.get(OWNER_TAG) == cluster:
                ending = world.membership.get(name)
                assert ending is not None, (name, "was launched for the cluster and runs on, though nobody wants it")
                assert ending.phase == "terminating"
            if OWNER_TAG not in machine.tags:
                assert not any(call[0] == "instances.terminate" and name in call for call in world.calls)
        for name, member in world.membership.items():
            if self.cluster[name] == cluster:
                assert member.waits != "launch" or world.status(name, cluster) in ("WAITING", "PREPARE_FAILED"), name
                assert member.waits != "terminate", name
        assert instance_id(0) not in world.machines


ClustersUnderStress.TestCase.settings = settings(
    max_examples=250, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
TestClustersUnderStress = ClustersUnderStress.TestCase
