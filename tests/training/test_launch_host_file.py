"""M1, M2: people edit host_worker while a job runs; only whole, settled, sensible edits count."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path

import pytest
from dyntrain.controller.contract.messages import CoordinatorEndpoint
from dyntrain.controller.contract.reports import JobMember, JobReport
from dyntrain.training.coordinator.host_log import HOST_FILE, HOST_LOG
from dyntrain.training.coordinator.mirror import WorkerListFiles
from dyntrain.training.launch.command import Launcher
from dyntrain.training.launch.host_file import EditResult, EditRules, FileHosts, instance_of, judge
from dyntrain.training.launch.plan import parse
from hypothesis import given
from hypothesis import strategies as st

A, B, C, D = "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"

ENDPOINT = CoordinatorEndpoint(
    cluster="manual", job="j", instance_id=instance_of(A), url="wss://10.0.0.1:1", certificate="", published_at=1.0
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """Two base hosts, edits, and looks at the file some seconds apart."""

    def __init__(self, folder: Path, minimum: int = 2) -> None:
        self.folder, self.clock = folder, Clock()
        self.hosts = FileHosts(folder, [A, B], minimum=minimum, clock=self.clock)
        self.looks(3)

    def edit(self, *lines: str, end: str = "\n") -> None:
        (self.folder / HOST_FILE).write_text("\n".join(lines) + end)

    def looks(self, count: int = 5) -> tuple[str, ...]:
        for _ in range(count):
            self.clock.now += 1
            target = self.hosts.read_target()
        assert target.members == tuple(map(instance_of, self.hosts.hosts))
        return self.hosts.hosts

    def trains(self, *active: str, forming: tuple[str, ...] = ()) -> None:
        self.hosts.report(report(*active, forming=forming))

    def log(self) -> list[list[str]]:
        return [line.split() for line in (self.folder / HOST_LOG).read_text().splitlines()]


def report(*active: str, forming: tuple[str, ...] = (), state: str = "running") -> JobReport:
    """The coordinator's, of workers on these addresses."""
    members = [
        JobMember(instance_id=instance_of(host), rank=rank, active=host in active, joined_epoch=0, joined_at=1.0)
        for rank, host in enumerate((*active, *forming))
    ]
    return JobReport.model_validate(
        {
            "cluster": "manual",
            "job": "j",
            "state": state,
            "started_at": 1.0,
            "sequence": 1,
            "generation": 1,
            "revision": 1,
            "members": members,
        }
    )


@pytest.mark.parametrize("lines", [(A, B, C), (C, A, B)])
def test_m1_a_line_more_joins_whether_newcomers_come_first_or_last(tmp_path: Path, lines: tuple[str, ...]) -> None:
    bench = Bench(tmp_path)
    bench.edit(*lines)
    assert bench.looks(2) == (A, B), "not before it has settled"
    assert bench.looks() == (A, B, C)
    assert bench.log() == [], "an edit that is accepted is no worker that has joined"
    bench.trains(A, B, forming=(C,))
    assert [entry[:3] for entry in bench.log()] == [["0", "ADDED", A], ["1", "ADDED", B]]
    bench.trains(A, B, C)
    assert [entry[:3] for entry in bench.log()] == [["0", "ADDED", A], ["1", "ADDED", B], ["2", "ADDED", C]]
    assert all(re.fullmatch(r"\d{19}", entry[3]) for entry in bench.log())


def test_m1_empty_and_half_written_files_are_never_acted_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, minimum=1)
    for text in (
        "",
        "\n",
        "10.0.0.1",
        "10.0.0.1\n10.0.0.2\n10.0.",
        "10.0.0.1\n10.0.0.2\n10.0.0.3",
        "10.0.0.1\n10.0.0.2\n10.0.0\n",
        f"{A}\n{B}\n{B}\n",
    ):
        (tmp_path / HOST_FILE).write_text(text)
        assert bench.looks() == (A, B), repr(text)
    (tmp_path / HOST_FILE).unlink()
    with pytest.raises(RuntimeError, match="No such file"):
        bench.looks(1)
    bench.edit(A, B, C)
    assert bench.looks() == (A, B, C), "a good edit afterwards counts"


def test_m1_a_file_that_keeps_changing_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for i in range(8):
        bench.edit(A, B, f"10.0.1.{i}")
        bench.looks(1)
    assert bench.hosts.hosts == (A, B)


def test_m2_a_removed_line_leaves_and_a_base_hosts_line_is_refused_clearly_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path)
    bench.edit(A, B, C, D)
    bench.looks()
    bench.trains(A, B, C, D)
    bench.edit(A, B, D)
    assert bench.looks() == (A, B, D)
    assert bench.log()[-1][:3] == ["3", "ADDED", D], "it is to leave, and trains on to the boundary"
    bench.trains(A, B, D)
    bench.edit(A, D)
    with caplog.at_level(logging.WARNING):
        assert bench.looks(20) == (A, B, D)
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [line.count("base host") for line in warnings] == [2], "one line, not one a look"
    assert bench.log()[-1][:3] == ["4", "REMOVED", C]


def test_m2_a_swap_is_one_revision(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.edit(A, B, C)
    bench.looks()
    before = bench.hosts.read_target().revision
    bench.edit(A, B, D)
    bench.looks()
    assert bench.hosts.read_target().revision == before + 1


def test_m2_a_job_that_comes_back_goes_on_with_its_hosts_and_numbers(tmp_path: Path) -> None:
    first = Bench(tmp_path)
    first.edit(A, B, C)
    first.looks()
    first.trains(A, B, C)
    with (tmp_path / HOST_LOG).open("a") as file:
        file.write("3 ADD")  # a crash tore it
    second = Bench(tmp_path)
    assert second.hosts.hosts == (A, B, C)
    second.edit(A, B)
    second.looks()
    second.hosts.report(report(state="paused"))
    second.trains(A, B)
    assert [entry[:3] for entry in second.log() if len(entry) == 4][-1] == ["3", "REMOVED", C]


@given(st.text(alphabet="0123456789.:\n xé", max_size=60))
def test_m1_no_text_whatever_drops_a_base_host(text: str) -> None:
    hosts, verdict = judge(text, EditRules((A, B), minimum=1))
    assert verdict is not EditResult.ACCEPTED or {A, B} <= set(hosts)


def test_on_a_cluster_the_file_is_a_mirror_with_the_masters_line_last(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """There tags decide: what people write into the file goes with the next change."""
    mirror, addresses = WorkerListFiles(), {instance_of(host): host for host in (A, B, C)}
    mirror.update(tmp_path, report(A, B, forming=(C,)), addresses, A)
    assert (tmp_path / HOST_FILE).read_text() == f"{B}\n{A}\n"
    (tmp_path / HOST_FILE).write_text(f"{D}\n")
    mirror.update(tmp_path, report(A, B, C), addresses, A)
    assert (tmp_path / HOST_FILE).read_text() == f"{B}\n{C}\n{A}\n"
    (tmp_path / HOST_FILE).unlink()
    (tmp_path / HOST_FILE).mkdir()
    mirror.update(tmp_path, report(A, B), addresses, A)
    (tmp_path / HOST_FILE).rmdir()
    mirror.update(tmp_path, report(A, B), addresses, A)
    assert (tmp_path / HOST_FILE).read_text() == f"{B}\n{A}\n", "what could not be written is tried again"
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            mirror.update(tmp_path / "nowhere", report(A), addresses, A)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1, "said once, and the job goes on"


@pytest.mark.parametrize(("state", "launched"), [("running", [A, B]), ("finished", []), ("failed", [])])
def test_launch_a_node_that_ended_with_its_job_is_not_launched_again(
    tmp_path: Path, state: str, launched: list[str]
) -> None:
    """It would look for a coordinator that is gone, and say so in the last lines of a job that ended well."""
    kept = []

    class Keeps(Launcher):
        async def _keep_node_running(self, host: str) -> None:
            kept.append(host)

    hosts = FileHosts(tmp_path, [A, B])
    hosts.publish(ENDPOINT, "token")
    hosts.report(report(A, B, state=state))

    async def looks_once() -> None:
        watching = asyncio.create_task(
            Keeps(parse(["-n", "2", "--launcher", "local", "true"]), tmp_path, hosts).keep_nodes_running()
        )
        await asyncio.sleep(0)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(looks_once())
    assert kept == launched


def test_a_base_host_that_was_in_no_step_is_named_once_others_have_trained(tmp_path: Path) -> None:
    """A job on one of two hosts must not end as if it had been on both."""
    hosts = FileHosts(tmp_path, [A, B], destinations={B: ("--", "node-b")})
    hosts.report(report(forming=(A, B)))
    assert hosts.untrained_hosts() == "", "nothing was trained, so nothing without somebody"
    hosts.report(report(A, forming=(B,)))
    assert hosts.untrained_hosts() == "node-b"
    hosts.report(report(A, B))
    hosts.report(report(A, state="finished"))
    assert hosts.untrained_hosts() == "", "who was lost later did take part"
