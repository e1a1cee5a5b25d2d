"""T22, the node's part: an elastic node that is given the base tag holds ps-lite processes and stands by, without being
started again.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from dyntrain.controller.contract.messages import Target, parameter
from dyntrain.training.protocol.node_messages import GroupReady, NodeHello
from node_coordinator import training_node
from node_fakes import wait_until

OLD = "i-0aaaaaaaaaaaaaaa1"
TAG = "meta-data/tags/instance/dyntrain:base"
BLANK = (
    sys.executable,
    "-c",
    "from dyntrain.training.host.forkserver import serve; serve(lambda role, environment: None)",
)


def test_t22_a_node_that_is_tagged_offers_a_group_and_its_worker_is_not_disturbed(tmp_path: Path) -> None:
    """The coordinator exchanges the two nodes once the new one offers processes; one that had to restart would lose its
    state.
    """

    async def scenario() -> None:
        async with training_node(tmp_path, blank=BLANK) as (here, coordinator, _):
            assert coordinator.hellos[0].base is False
            assert coordinator.messages(GroupReady) == []
            here.metadata.failures = 8  # more than the tries for one answer
            here.metadata.values[TAG] = OLD
            offer = (await wait_until(lambda: coordinator.messages(GroupReady), "the group is offered"))[-1]
            assert offer.blanks >= 1, "how many more have started by then is chance"
            assert len(here.workers_started()) == 1
            await coordinator.present.close()  # type: ignore[union-attr]
            again: NodeHello = (await wait_until(lambda: coordinator.hellos[1:], "the node connects again"))[0]
            assert again.base is True, "a coordinator that hears of it for the first time must know it too"

    asyncio.run(scenario())


def test_where_all_nodes_serve_an_elastic_one_offers_its_group_from_the_start(tmp_path: Path) -> None:
    """And the coordinator, which keeps such groups apart from those of base nodes, hears when it has become one."""

    async def scenario() -> None:
        async with training_node(tmp_path, blank=BLANK, servers="all") as (here, coordinator, _):
            offers = await wait_until(lambda: coordinator.messages(GroupReady), "the group is offered")
            assert [offer.base for offer in offers] == [False] * len(offers)
            here.metadata.values[TAG] = OLD
            await wait_until(
                lambda: [offer for offer in coordinator.messages(GroupReady) if offer.base],
                "a base node offers it",
            )

    asyncio.run(scenario())


def test_t22_a_promoted_node_stands_by_for_the_coordinator(tmp_path: Path) -> None:
    """Else the last base node could be replaced by one that never takes the job over."""

    async def scenario() -> None:
        calls = tmp_path / "terms"
        program = f"import sys, time; open({str(calls)!r}, 'a').write(sys.argv[-1] + chr(10)); time.sleep(600)"
        async with training_node(
            tmp_path, blank=BLANK, program=(sys.executable, "-c", program), nomination_check_seconds=0.05
        ) as (
            here,
            coordinator,
            _,
        ):
            here.metadata.values[TAG] = OLD
            await wait_until(lambda: coordinator.messages(GroupReady), "the group is offered")
            target = Target.of(2, ()).model_copy(update={"coordinator": coordinator.hellos[0].instance_id, "term": 7})
            here.parameters.values[parameter("demo", "target")] = target.model_dump_json()
            await coordinator.stop()
            assert await wait_until(
                lambda: calls.read_text().split() if calls.exists() else None, "the coordinator is started here"
            ) == ["7"]

    asyncio.run(scenario())
