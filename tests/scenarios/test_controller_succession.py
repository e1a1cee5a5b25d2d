"""T21, the controller's part: which base node is nominated to run the coordinator, and when another one is."""

from __future__ import annotations

from dyntrain.controller.cli.answers.query import snapshot, summary
from dyntrain.controller.cli.text.status import cluster_lines
from dyntrain.controller.contract.messages import BASE_TAG, NODE_TYPE_TAG, OWNER_TAG, ClusterPolicy
from dyntrain.controller.contract.reports import JobReport
from dyntrain.controller.core.decisions.succession import NominationReason, nominate, with_nomination
from dyntrain.controller.core.planning import decide
from dyntrain.controller.core.records.facts import NodeFacts, Preparation, StateEvent, StateRead, TagsRead
from dyntrain.controller.core.records.job import JobFacts
from dyntrain.controller.core.views.target import Membership
from dyntrain.controller.core.views.view import Rules, view
from dyntrain.controller.loops.ports import StoredNode
from fakes import ELASTIC, START, World, instance_id
from hypothesis import given
from hypothesis import strategies as st

RULES = Rules(ClusterPolicy(cluster="demo"))
PATIENCE = RULES.policy.takeover_seconds
NOW = START + 5000.0


def cluster_of_three(world: World) -> tuple[str, str, str]:
    """A master and two base workers, prepared and training; the master is nominated."""
    master, *others = (
        world.launch(number, base=True, NodeType="Master" if number == 1 else "Worker") for number in (1, 2, 3)
    )
    world.resync()
    world.hear(*(world.report(instance) for instance in (master, *others)))
    world.hear(world.job_event(master, *others, revision=world.target().revision))
    return master, others[0], others[1]


def status_text(world: World) -> str:
    return "\n".join(cluster_lines(summary(snapshot(world.ports, world.registry, "demo", ELASTIC)), None, None))


def test_t21_the_prepared_master_is_nominated_with_its_first_target() -> None:
    """A replacement that boots with the master's tag must not begin a second coordinator: the target names the one that
    stands.
    """
    world = World()
    worker = world.launch(2, base=True, NodeType="Worker")
    master = world.launch(1, base=True, NodeType="Master")
    world.resync()
    world.hear(world.report(worker))
    assert world.target().coordinator is None, "a base worker that is prepared first does not overtake the master"
    world.hear(world.report(master))
    target = world.target()
    assert (target.coordinator, target.term > 0) == (master, True)
    revision = target.revision
    world.hear(world.job_event(master, worker, revision=revision))
    world.resync()
    assert world.target().revision == revision, "a nomination that stands is not published again"


def test_t21_a_terminated_master_has_the_next_base_node_nominated_at_once() -> None:
    world = World()
    master, second, third = cluster_of_three(world)
    before = world.target()
    world.hear(world.state_event(master, "terminated"))
    after = world.target()
    assert (after.coordinator, set(after.members)) == (second, {second, third})
    assert after.term > before.term
    assert after.revision == before.revision + 1, "the loss and the nomination are one change"
    assert [entry["coordinator"] for entry in world.trail if entry["kind"] == "nomination"] == [master, second]
    assert [line.split()[0] for line in status_text(world).splitlines() if "coordinator" in line] == [second]


def test_t21_the_nomination_does_not_go_back_to_a_master_that_returns() -> None:
    """Handing back would cost a restart from the commit for nothing."""
    world = World()
    master, second, _third = cluster_of_three(world)
    world.hear(world.state_event(master, "stopping"))
    term = world.target().term
    world.wait(300)
    world.hear(world.job_event(second, revision=world.target().revision))
    world.hear(
        world.state_event(master, "pending"), world.state_event(master, "running"), world.report(master, attempt=2)
    )
    assert (world.target().coordinator, world.target().term) == (second, term)


def test_t21_a_silent_coordinator_is_succeeded_only_after_the_patience_and_by_the_tick() -> None:
    world = World()
    master, second, third = cluster_of_three(world)
    world.wait(PATIENCE - 1)
    world.resync()
    assert world.target().coordinator == master
    world.wait(2)
    world.resync()
    assert world.target().coordinator == second
    world.wait(PATIENCE + 2)
    world.resync()
    assert world.target().coordinator == third, (
        "nor did the second one speak: its successor is the third, not the master again"
    )


def test_t21_without_a_base_node_the_job_is_paused_with_that_reason_until_one_comes() -> None:
    world = World()
    master = world.launch(1, base=True, NodeType="Master")
    elastic = world.launch(7)
    world.resync()
    world.hear(world.report(master), world.report(elastic))
    world.hear(world.job_event(master, elastic, revision=world.target().revision))
    world.hear(world.state_event(master, "terminated"))
    world.wait(RULES.policy.lease_seconds + 1)
    world.resync()
    assert world.target().coordinator is None
    assert world.target().term > 0
    assert world.standing(elastic) == ("ADD_QUEUED", "NO_BASE_NODE")
    assert ("NoBaseNode", "demo", 1) in world.metrics
    assert "no base node is left to run the coordinator" in status_text(world).splitlines()[0]
    replacement = world.launch(8, base=True, NodeType="Master")
    world.resync()
    world.hear(world.report(replacement))
    assert world.target().coordinator == replacement


def test_t21_a_cluster_whose_item_was_lost_keeps_its_coordinator() -> None:
    """Forgetting the term would let a node with an older nomination begin again."""
    world = World()
    master, second, _third = cluster_of_three(world)
    world.hear(world.state_event(master, "stopping"))
    world.hear(
        world.state_event(master, "pending"), world.state_event(master, "running"), world.report(master, attempt=2)
    )
    before = world.target()
    assert before.coordinator == second
    del world.table["cluster", "demo"]
    world.resync()
    after = world.target()
    assert (after.coordinator, after.term) == (before.coordinator, before.term)
    assert after.revision >= before.revision


def test_t21_an_index_that_lags_does_not_take_the_coordinator_away() -> None:
    """The index may still show a stop that is over: who is nominated is confirmed by consistent reads first."""
    world = World()
    master, second, _third = cluster_of_three(world)
    node = world.ports.nodes.get(master)
    assert node is not None
    stopped = node.facts.join(NodeFacts(instance=master, state_event=StateEvent(at=world.now, state="stopping")))
    world.ports.nodes.lagging[master] = StoredNode(stopped, node.version)  # type: ignore[attr-defined]
    running = node.facts.join(NodeFacts(instance=master, state_event=StateEvent(at=world.now + 1, state="running")))
    world.table["node", master] = (running, node.version + 1)
    world.hear(world.report(second, attempt=2))
    assert world.target().coordinator == master


# ---- laws


def base_node(number: int, *, master: bool, prepared: bool, state: str) -> NodeFacts:
    tags = {BASE_TAG: "true", OWNER_TAG: "demo", NODE_TYPE_TAG: "Master" if master else "Worker"}
    preparation = (
        Preparation(attempt=1, at=NOW - 600.0 + number, outcome="prepared", reason="", private_ip="10.0.0.1")
        if prepared
        else None
    )
    return NodeFacts(
        instance=instance_id(number),
        tags_read=TagsRead(started=NOW - 60, tags=tags),
        state_read=StateRead(started=NOW - 60, state=state, launched_at=NOW - 900),
        preparation=preparation,
        terminated=state == "terminated",
    )


nodes = st.lists(
    st.tuples(st.booleans(), st.sampled_from(["running", "running", "stopping", "terminated"])), min_size=0, max_size=5
).map(
    lambda drawn: [
        base_node(number, master=number == 0, prepared=prepared, state=state)
        for number, (prepared, state) in enumerate(drawn)
    ]
)


@given(nodes, st.integers(-1, 5), st.integers(0, int(NOW) + 50), st.one_of(st.none(), st.floats(0, 400)))
def test_t21_law_the_nominated_is_a_base_node_that_is_there_and_the_term_only_grows(
    facts: list[NodeFacts], holder: int, term: int, silence: float | None
) -> None:
    """Whatever is known: nobody who is gone is nominated anew, a change has a higher term, and the same facts again
    change nothing.
    """
    report = JobReport(
        cluster="demo", job="j", state="running", started_at=1.0, sequence=1, generation=1, revision=1, members=()
    )
    heard = None if silence is None else JobFacts(report=report, heard_at=NOW - silence)
    old = Membership(revision=3, coordinator=instance_id(holder) if term and holder >= 0 else None, term=term)
    views = [view(one, RULES, NOW) for one in facts]
    nomination = nominate(old, views, heard, RULES, NOW)
    able = {one.instance for one in views if one.prepared and one.state == "running"}
    if nomination.coordinator != old.coordinator:
        assert nomination.term > old.term
        assert nomination.coordinator is None or nomination.coordinator in able
    else:
        assert nomination.term == old.term
    if old.term and nomination.reason is NominationReason.NOBODY:
        assert not able
    new = with_nomination(old, old, nomination)
    assert new.revision == old.revision + (nomination.term != old.term)
    again = nominate(new, views, heard, RULES, NOW)
    assert (again.coordinator, again.term) == (new.coordinator, new.term), "one set of facts makes one nomination"


@given(nodes)
def test_t21_law_a_decision_publishes_what_it_nominates(facts: list[NodeFacts]) -> None:
    decision = decide(facts, Membership(), None, RULES, NOW, published=0)
    assert (decision.nomination is None) == (decision.membership.term == 0)
    assert decision.membership.target.coordinator == decision.membership.coordinator


@given(st.sets(st.sampled_from(["terminated", "failed", "stopping"])), st.booleans())
def test_t21_law_the_nomination_passes_for_any_one_reason_and_never_without(why: set[str], holds: bool) -> None:
    """Gone, not prepared any more, or on its way out: each is enough, and none needs another."""
    first, second = (base_node(n, master=n == 0, prepared=True, state="running") for n in range(2))
    if "stopping" in why:
        first = first.model_copy(update={"state_read": StateRead(started=NOW - 60, state="stopping")})
    if "failed" in why:
        failed = Preparation(attempt=1, at=NOW - 30, outcome="prepare_failed", reason="full", private_ip="10.0.0.1")
        first = first.model_copy(update={"preparation": failed})
    if "terminated" in why:
        first = first.model_copy(update={"terminated": True})
    old = Membership(revision=3, coordinator=first.instance, term=7) if holds else Membership(revision=3)
    nomination = nominate(old, [view(one, RULES, NOW) for one in (first, second)], None, RULES, NOW)
    assert nomination.coordinator == (second.instance if why else first.instance)
