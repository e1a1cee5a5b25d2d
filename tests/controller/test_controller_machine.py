"""Clusters under random events, losses, duplicates, throttles and crashes between any two effects (Hypothesis).

Whatever happened: after one quiet resync (two when the first would remove most members, which waits for a second
reading) the controller and AWS agree with what is true of the machines. And while it happens: nothing is ended that is
known to be wanted, a revision never goes back and means one membership, and what is noted as published is what the
coordinator can read.
"""

from __future__ import annotations

from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.contract.messages import OWNER_TAG, STATUS_TAG
from dyntrain.controller.core.views.target import Membership
from fakes import Machine, instance_id
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant
from shaky_world import EFFECTS
from stressed_clusters import CLUSTERS, StressedClusters


class ClustersUnderStress(StressedClusters):
    """The laws, and the reckoning at the end."""

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
        ready = (
            report is not None
            and report["detail"]["outcome"] == "prepared"
            and report["detail"]["at"] >= machine.launched_at
        )
        stays = machine.state == "running" and (member is None or member.phase != "terminating")
        return ready and stays and ELASTIC_TAG.of(self.cluster[name]) in machine.tags

    def check(self, cluster: str) -> None:
        world = self.world
        membership: Membership = world.ports.clusters.get(cluster).membership
        elastic = {name: world.machines[name] for name, home in self.cluster.items() if home == cluster}
        expected = {
            self.base if cluster == "demo" else self.neighbour,
            *(name for name, machine in elastic.items() if self.wanted(name, machine)),
        }
        assert set(membership.members) == expected
        assert (world.target(cluster).revision, world.target(cluster).digest) == (
            membership.revision,
            membership.target.digest,
        )
        for name, machine in elastic.items():
            heard_of = world.ports.nodes.get(name) is not None
            assert heard_of or not {OWNER_TAG, ELASTIC_TAG.of(cluster)} & set(machine.tags)
            if machine.state in ("terminated", "shutting-down") or not heard_of:
                continue
            status, reason = world.standing(name, cluster)
            if name in expected:
                assert status == ("ADDED" if self.job and cluster == "demo" else "ADD_QUEUED"), (name, reason)
            if status not in ("WAITING", "GONE") and reason != "NEVER_ASKED":
                assert machine.tags.get(STATUS_TAG) == status, (name, status, reason, machine)
            if ELASTIC_TAG.of(cluster) not in machine.tags and machine.tags.get(OWNER_TAG) == cluster:
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
    max_examples=250,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestClustersUnderStress = ClustersUnderStress.TestCase
