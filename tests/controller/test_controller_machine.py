"""A cluster under random events, losses, duplicates, throttles and crashes between any two effects (Hypothesis).

Whatever happened: after one quiet resync (two when the first would remove most members, which waits for a second reading) the controller and
AWS agree with what is true of the machines.
"""

from __future__ import annotations

from typing import Any

from fakes import SUFFIX, Machine, Member, World, instance_id
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from controller.adapters.items import wake_of
from controller.contract import OWNER_TAG, STATUS_TAG, Target, elastic_tag
from controller.converge import converge
from controller.errors import ControllerError, RetryLater
from controller.resync import resync
from controller.target import Membership

GROUP = "demo-workers"
MUTATIONS = ("instances.tag", "instances.terminate", "groups.complete", "groups.terminate", "groups.protect", "parameters.put_target")
ANY = st.randoms(use_true_random=False)


class Crash(Exception):
    """The process dies here."""


class ShakyWorld(World):
    """Fails at the call that burns its fuse down."""

    def __init__(self, *clusters: str, **policy: Any) -> None:
        self.fuse: int | None = None
        self.bomb: Exception = Crash()
        super().__init__(*clusters, **policy)

    def called(self, name: str, *arguments: str) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                self.fuse = None
                raise self.bomb
        self.now += 0.001
        super().called(name, *arguments)


class ClusterUnderStress(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = ShakyWorld("demo", "other", max_workers=64)
        self.queue: list[dict[str, Any]] = []
        self.reports: dict[str, dict[str, Any]] = {}
        self.attempts: dict[str, int] = {}
        self.number = 0
        self.training: tuple[str, ...] = ()
        self.obeyed = 0
        self.seen_revision = 0

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
        living = [name for name, machine in self.world.machines.items() if machine.state in states and name not in (self.base, self.neighbour)]
        return draw.choice(sorted(living)) if living else None

    @rule(kind=st.sampled_from(["owned", "by hand", "member"]))
    def launch(self, kind: str) -> None:
        self.number += 1
        world = self.world
        if kind == "member":
            instance = world.member(self.number)
            self.queue.append(world.hook_event(instance, "launch", f"up-{self.number}"))
        else:
            instance = world.launch(self.number, owned=kind == "owned", elastic=False)
            self.queue.append(world.tag(instance))

    @rule(draw=ANY, present=st.booleans())
    def tag(self, draw: Any, present: bool) -> None:
        instance = self.elastic(draw, "running", "stopped")
        if instance is not None:
            self.queue.append(self.world.tag(instance, present=present))

    @rule(draw=ANY, outcome=st.sampled_from(["prepared", "prepared", "prepared", "prepare_failed"]))
    def bootstrap(self, draw: Any, outcome: str) -> None:
        instance = self.elastic(draw, "running")
        if instance is not None:
            self.world.wait(1.0)  # nor does a bootstrap report at the instant of its machine's start
            self.attempts[instance] = self.attempts.get(instance, 0) + 1
            self.reports[instance] = self.world.report(instance, outcome, attempt=self.attempts[instance], reason="x")
            self.queue.append(self.reports[instance])

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
            self.world.membership[instance] = Member(GROUP, "terminating", "terminate")
            self.queue.append(self.world.hook_event(instance, "terminate", f"down-{instance}"))

    # ---- what happens to the messages and to the controller

    @rule(draw=ANY, times=st.sampled_from([0, 1, 1, 1, 2]), fuse=st.none() | st.integers(0, 3))
    def deliver(self, draw: Any, times: int, fuse: int | None) -> None:
        """One waiting event, in any order; lost, once or twice; perhaps to a handler that dies."""
        if self.queue:
            event = self.queue.pop(draw.randrange(len(self.queue)))
            for _ in range(times):
                self.shaken(fuse, lambda event=event: self.world.take_in(event))

    @precondition(lambda self: bool(self.world.stream))
    @rule(draw=ANY, fuse=st.none() | st.integers(0, 25), throttled=st.booleans(), again=st.booleans())
    def run_stream(self, draw: Any, fuse: int | None, throttled: bool, again: bool) -> None:
        """A batch of any of the records, in any order; what fails is delivered again or lost."""
        records, self.world.stream = self.world.stream, []
        draw.shuffle(records)
        batch, later = records[: len(records) // 2 + 1], records[len(records) // 2 + 1 :]
        woken = [record for record in batch if record["NewImage"]["wake"]["BOOL"]]
        done = self.shaken(fuse, lambda: converge(self.world.ports, self.world.registry, wake_of(woken), SUFFIX), throttled)
        self.world.stream += later + (batch if again and not done else [])

    @rule(fuse=st.integers(0, 15))
    def catch_up_and_die(self, fuse: int) -> None:
        """All that is known is looked at in one batch, which dies somewhere and is never delivered again."""
        self.world.take_in(*self.queue)
        self.queue.clear()
        records, self.world.stream = [record for record in self.world.stream if record["NewImage"]["wake"]["BOOL"]], []
        self.shaken(fuse, lambda: converge(self.world.ports, self.world.registry, wake_of(records), SUFFIX))
        self.world.stream.clear()

    @rule()
    def an_hour_in_which_all_is_well(self) -> None:
        self.world.wait(3600)
        self.world.hear(*self.queue, *self.heartbeat())
        self.queue.clear()
        self.world.resync()

    @rule(fuse=st.none() | st.integers(0, 25), throttled=st.booleans())
    def resync_as_scheduled(self, fuse: int | None, throttled: bool) -> None:
        self.shaken(fuse, lambda: resync(self.world.ports, self.world.registry, SUFFIX), throttled)

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
        text = self.world.parameters.get("/dyntrain/demo/target")
        target = Target.model_validate_json(text) if text is not None else None
        if target is not None and target.revision >= self.obeyed:
            assert target.members is not None
            standing = [name for name in target.members if self.world.machines[name].state == "running"]
            self.training, self.obeyed = tuple(standing), target.revision
        return self.world.job_event(*self.training, revision=self.obeyed)

    def shaken(self, fuse: int | None, act: Any, throttled: bool = False) -> bool:
        self.world.fuse = fuse
        self.world.bomb = RetryLater("Throttling") if throttled else Crash()
        try:
            act()
        except (Crash, ControllerError):
            return False
        finally:
            self.world.fuse = None
        return True

    # ---- what must hold

    @invariant()
    def the_neighbour_is_left_alone(self) -> None:
        if hasattr(self, "neighbour"):
            machine = self.world.machines[self.neighbour]
            assert machine.state == "running"
            assert {key: value for key, value in machine.tags.items() if key != STATUS_TAG} == self.kept_tags

    @invariant()
    def the_revision_only_grows(self) -> None:
        stored = self.world.table.get(("cluster", "demo"))
        revision = stored[0].membership.revision if stored is not None else 0
        assert revision >= self.seen_revision
        self.seen_revision = revision

    def teardown(self) -> None:
        if not hasattr(self, "base"):
            return
        world = self.world
        self.catch_up_and_die(self.last_fuse)
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
        self.check()
        world.wait(20)
        before = sum(call[0] in MUTATIONS for call in world.calls)
        world.hear(*self.heartbeat())
        world.resync()
        assert sum(call[0] in MUTATIONS for call in world.calls) == before, world.calls[-30:]

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
                world.hear(world.hook_event(name, "terminate", f"down-{name}"))
            elif member.phase == "launching" and member.waits is None:
                member.phase = "in_service"

    def wanted(self, name: str, machine: Machine) -> bool:
        report = self.reports.get(name)
        member = self.world.membership.get(name)
        ready = report is not None and report["detail"]["outcome"] == "prepared" and report["detail"]["at"] >= machine.launched_at
        stays = machine.state == "running" and (member is None or member.phase != "terminating")
        return ready and stays and elastic_tag("demo") in machine.tags

    def check(self) -> None:
        world = self.world
        membership: Membership = world.ports.clusters.get("demo").membership
        elastic = {name: machine for name, machine in world.machines.items() if name not in (self.base, self.neighbour)}
        expected = {self.base, *(name for name, machine in elastic.items() if self.wanted(name, machine))}
        assert set(membership.members) == expected
        assert (world.target().revision, world.target().digest) == (membership.revision, membership.target.digest)
        for name, machine in elastic.items():
            heard_of = world.ports.nodes.get(name) is not None
            assert heard_of or not {OWNER_TAG, elastic_tag("demo")} & set(machine.tags)
            if machine.state in ("terminated", "shutting-down") or not heard_of:
                continue
            status, reason = world.standing(name)
            if name in expected:
                assert status == ("ADDED" if self.job else "ADD_QUEUED"), (name, reason)
            if status not in ("WAITING", "GONE") and reason != "NEVER_ASKED":
                assert machine.tags.get(STATUS_TAG) == status, (name, status, reason, machine)
            if elastic_tag("demo") not in machine.tags and machine.tags.get(OWNER_TAG) == "demo":
                ending = world.membership.get(name)
                assert ending is not None, (name, "was launched for the cluster and runs on, though nobody wants it")
                assert ending.phase == "terminating"
            if OWNER_TAG not in machine.tags:
                assert not any(call[0] == "instances.terminate" and name in call for call in world.calls)
        for name, member in world.membership.items():
            if member.waits == "launch":
                assert world.status(name) in ("WAITING", "PREPARE_FAILED"), name
            assert member.waits != "terminate", name
        assert instance_id(0) not in world.machines


ClusterUnderStress.TestCase.settings = settings(
    max_examples=250, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
TestClusterUnderStress = ClusterUnderStress.TestCase
