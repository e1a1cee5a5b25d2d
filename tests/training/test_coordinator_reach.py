"""A coordinator that AWS does not answer says so where it still can, and is at work again once it does: people must not
have to guess why a target is not obeyed.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from dyntrain.controller.contract.messages import CoordinatorEndpoint, Target
from dyntrain.controller.contract.reports import JobReport, Unreachable
from dyntrain.controller.local.pace import patient
from dyntrain.training.coordinator import server
from dyntrain.training.coordinator.hosts import HostsError
from dyntrain.training.coordinator.reach import UnreachableResources
from dyntrain.training.coordinator.server import ADDRESS, TARGET, Coordinator
from dyntrain.training.coordinator.terms import Overtaken
from dyntrain.training.layout import JobFolder
from dyntrain.training.session.generation.generation import Limits
from dyntrain.training.session.job.options import Options
from job_bed import BED, ListedHosts, instance
from waiting import until

OPTIONS = Options(**BED, started_at=1.0, limits=Limits(1, 2), workers=1)
A, B = instance("A"), instance("B")


class DeafHosts(ListedHosts):
    """Hears reports; the rest is `refused`."""

    def __init__(self) -> None:
        super().__init__()
        self.refused = True

    def _answer(self) -> None:
        if self.refused:
            raise HostsError("Unable to locate credentials")

    def read_target(self) -> Target | None:
        self._answer()
        return super().read_target()

    def publish(self, endpoint: CoordinatorEndpoint, token: str) -> None:
        self._answer()
        super().publish(endpoint, token)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REPORT_SECONDS", 0.1)


def lacking(reports: list[JobReport]) -> list[str]:
    return [one.what for one in reports[-1].unreachable] if reports else []


def test_what_cannot_be_reached_is_reported_until_it_answers(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosts = DeafHosts()
        running = asyncio.create_task(Coordinator(OPTIONS, JobFolder.of(tmp_path, **BED), hosts, "127.0.0.1", A).run())
        await until(lambda: lacking(hosts.reports) == [ADDRESS], 30, "it says that nobody can find it yet")
        first = hosts.reports[-1].unreachable[0]
        await until(lambda: len(hosts.reports) > 20, 30, "and says so again")
        assert hosts.reports[-1].unreachable[0].since == first.since
        assert first.reason == "Unable to locate credentials"
        hosts.refused = False
        await until(lambda: hosts.endpoint is not None and lacking(hosts.reports) == [], 30, "it is found")
        hosts.refused = True
        await until(lambda: lacking(hosts.reports) == [TARGET], 30, "it sees no target any more")
        hosts.refused = False
        await until(lambda: lacking(hosts.reports) == [], 30, "and sees it again")
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scenario())


def test_one_that_is_overtaken_before_it_could_be_found_reports_no_more(tmp_path: Path) -> None:
    async def scenario() -> None:
        hosts, folder = DeafHosts(), JobFolder.of(tmp_path, **BED)
        first = asyncio.create_task(Coordinator(OPTIONS, folder, hosts, "127.0.0.1", A, term=0).run())
        await until(lambda: bool(hosts.reports), 30)
        others = ListedHosts()
        second = asyncio.create_task(Coordinator(OPTIONS, folder, others, "127.0.0.1", B, term=5).run())
        await until(lambda: others.endpoint is not None, 30, "the second is at work")
        with pytest.raises(Overtaken):
            await asyncio.wait_for(first, patient(60))
        assert hosts.endpoint is None, "nobody is sent to it"
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)

    asyncio.run(scenario())


def test_the_log_says_since_when() -> None:
    reach, error = UnreachableResources(), HostsError("refused")
    assert reach.add_failure("a", error, 0.0) == "refused"
    assert reach.add_failure("b", error, 30.0) == "refused"
    assert reach.add_failure("a", error, 3661.0) == "refused (since 00:00:00 UTC)"
    assert reach.unreachable == tuple(
        Unreachable(what=what, since=at, reason="refused") for what, at in (("a", 0), ("b", 30))
    )
    reach.clear_failure("a")
    reach.clear_failure("never asked")
    assert [one.what for one in reach.unreachable] == ["b"]
