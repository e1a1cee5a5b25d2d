"""Two controllers in one account: same events, same instances, same parameters, tables of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dyntrain.controller.contract.stage import stage_parameter
from dyntrain.controller.loops.registry import Registry
from fakes import World

EFFECTS = ("parameters.put_target", "instances.tag", "instances.terminate", "groups.terminate", "groups.complete")


class Account:
    """`prod` has the cluster demo, `dev` the cluster other; whatever happens, both hear of it."""

    def __init__(self) -> None:
        self.prod, self.dev = World("demo", stage="prod"), World("other", stage="dev")
        self.dev.machines, self.dev.membership = self.prod.machines, self.prod.membership
        self.prod.parameters |= self.dev.parameters
        self.dev.parameters = self.prod.parameters
        for name, world in (("prod", self.prod), ("dev", self.dev)):
            self.prod.parameters[stage_parameter(name, "table")] = f"dyntrain-{name}"
            world.registry = Registry(world.ports.parameters, world.ports.clock, name)

    def hear(self, *events: Mapping[str, Any]) -> None:
        for world in (self.prod, self.dev):
            world.hear(*events)

    def resync(self) -> None:
        for world in (self.prod, self.dev):
            world.wait(60)
            world.resync()


def done_by(world: World) -> list[tuple[str, ...]]:
    return [call for call in world.calls if call[0] in EFFECTS]


def test_a_node_with_no_more_than_the_elastic_tag_is_its_clusters_controllers_alone() -> None:
    account = Account()
    prod = account.prod
    master = prod.launch(1000, base=True, NodeType="Master")
    worker = prod.launch(1, owned=False)  # nothing but the tag says whose it is
    account.hear(prod.report(master), prod.tag(worker), prod.report(worker))
    account.resync()
    account.hear(prod.job_event(master, worker, revision=prod.target().revision))
    assert prod.status(worker) == "ADDED"
    account.hear(prod.tag(worker, present=False))
    account.resync()
    account.hear(prod.job_event(master, revision=prod.target().revision))
    assert prod.target().members == (master,)
    assert {name for name, *_ in done_by(prod)} >= {"parameters.put_target", "instances.tag"}
    assert done_by(account.dev) == []


def test_a_tag_of_a_cluster_that_no_stage_has_moves_neither_of_them() -> None:
    account = Account()
    stray = account.prod.launch(7, "nobodys", owned=False)
    account.hear(account.prod.tag(stray, "nobodys"), account.prod.report(stray, cluster="nobodys"))
    account.resync()
    assert done_by(account.prod) == done_by(account.dev) == []


def test_an_instance_that_changes_over_to_a_cluster_of_the_other_stage_is_ended_by_neither() -> None:
    account = Account()
    prod, dev = account.prod, account.dev
    masters = {"demo": prod.launch(1000, base=True), "other": prod.launch(2000, "other", base=True)}
    worker = prod.launch(1, owned=False)
    account.hear(*(prod.report(node, cluster=cluster) for cluster, node in masters.items()))
    account.hear(prod.tag(worker), prod.report(worker))
    account.hear(prod.job_event(masters["demo"], worker, revision=prod.target().revision))
    account.hear(prod.tag(worker, present=False))
    account.hear(prod.tag(worker, "other"), prod.report(worker, cluster="other", attempt=2))
    account.hear(prod.job_event(masters["demo"], revision=prod.target().revision))
    account.resync()
    assert worker not in (prod.target().members or ())
    assert worker in (dev.target("other").members or ())
    ends = [call for world in (prod, dev) for call in done_by(world) if "terminate" in call[0]]
    assert ends == []
