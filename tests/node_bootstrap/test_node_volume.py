"""The shared volume and the logs' way off the host: what the node asks of systemd and of the CloudWatch agent, which
are scripts here.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from dyntrain.node_bootstrap.host.errors import ServiceUnavailable
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.processes import Children
from dyntrain.node_bootstrap.steps.volume import Volume, fstab_with
from hypothesis import given
from hypothesis import strategies as st
from node_coordinator import start_coordinator
from node_fakes import living, processes_of, wait_until, world

EFS = "fs-0123456789abcdef0"
ENTRY = f"{EFS}:/ /data efs _netdev,noresvport,tls 0 0"

SYSTEMCTL = """
import pathlib, sys
here = pathlib.Path(sys.argv[1])
with open(here / "asked", "a") as file:
    file.write(" ".join(sys.argv[2:]) + "\\n")
if sys.argv[2] == "start":
    if (here / "broken").exists():
        print("mount.efs: Failed to resolve the file system")
        sys.exit(32)
    (here / "mounted").touch()
"""


def ready(directory: Path, volume: str | None = EFS, systemctl: str = SYSTEMCTL) -> list[str]:
    """What systemd was asked until the volume was ready."""
    layout, mount = Layout(directory / "root"), directory / "data"
    layout.state_folder.mkdir(parents=True, exist_ok=True)
    program = directory / "systemctl.py"
    program.write_text(systemctl)

    async def scenario() -> None:
        children = Children(str(layout.state_folder), 1)
        command = [sys.executable, str(program), str(directory)]
        await Volume(
            volume, str(mount), layout, children, command, lambda path: (directory / "mounted").exists()
        ).ensure_mounted()

    try:
        asyncio.run(scenario())
    finally:
        assert processes_of(directory) == []
    calls = directory / "asked"
    return calls.read_text().replace(str(mount), "/data").splitlines() if calls.exists() else []


def fstab(directory: Path) -> str:
    return (directory / "root/etc/fstab").read_text().replace(str(directory / "data"), "/data")


def test_volume_is_mounted_with_tls_and_again_at_the_next_boot(tmp_path: Path) -> None:
    """Through systemd: a tunnel that the bootstrap had started itself would die with it, and every node's volume with
    the tunnel.
    """
    assert ready(tmp_path) == ["daemon-reload", "start /data"]
    assert fstab(tmp_path) == f"{ENTRY}\n"
    assert ready(tmp_path) == ["daemon-reload", "start /data"]  # mounted already: nothing more is asked


def test_volume_that_cannot_be_mounted_is_tried_again_and_says_why(tmp_path: Path) -> None:
    """The mount target may be younger than the instance; training into the empty directory below the mount would lose
    everything.
    """
    (tmp_path / "broken").touch()
    with pytest.raises(ServiceUnavailable, match=r"(?s)cannot mount fs-.*exit code 32.*Failed to resolve"):
        ready(tmp_path)
    (tmp_path / "broken").unlink()
    ready(tmp_path)
    assert fstab(tmp_path) == f"{ENTRY}\n"


def test_systemd_that_reports_success_without_a_mount_is_not_believed(tmp_path: Path) -> None:
    with pytest.raises(ServiceUnavailable, match="is not mounted"):
        ready(tmp_path, systemctl="")
    assert not (tmp_path / "mounted").exists()


def test_any_directory_will_do_where_no_file_system_is_named(tmp_path: Path) -> None:
    with pytest.raises(ServiceUnavailable, match="does not exist"):
        ready(tmp_path, volume=None)
    (tmp_path / "data").mkdir()
    assert ready(tmp_path, volume=None) == []


LINES = st.sampled_from(
    [
        "# UUID=1 /data ext4",
        "UUID=1 / ext4 defaults 0 1",
        "",
        "  ",
        "fs-1:/ /data efs tls 0 0",
        "fs-1:/ /other efs tls",
        "one",
    ]
)


@given(st.lists(LINES))
def test_fstab_keeps_the_entries_of_others(lines: list[str]) -> None:
    """A lost root entry is a machine that does not boot."""
    written = fstab_with("\n".join(lines), EFS, "/data")
    kept = [line for line in lines if line != "fs-1:/ /data efs tls 0 0"]
    assert written.splitlines() == [*"\n".join(kept).splitlines(), ENTRY] or written.splitlines() == [*kept, ENTRY]
    assert fstab_with(written, EFS, "/data") == written


AGENT = """#!{python}
import json, pathlib, sys
config = pathlib.Path(sys.argv[-1].removeprefix("file:"))
entries = json.loads(config.read_text())["logs"]["logs_collected"]["files"]["collect_list"]
with open("{calls}", "a") as file:
    file.write(json.dumps([sys.argv[1:-1], entries]) + "\\n")
sys.exit(1 if len(open("{calls}").readlines()) == 1 else 0)
"""


def test_agent_follows_the_logs_by_cluster_job_and_instance(tmp_path: Path) -> None:
    """Lines of two jobs in one stream cannot be told apart; an agent that fails must not keep the node from
    training.
    """
    calls = tmp_path / "calls"

    def calls_of_agent() -> list[tuple[list[str], list[dict[str, str]]]]:
        return [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []

    async def scenario() -> None:
        with world(tmp_path) as here:
            agent = here.layout.cloudwatch_agent
            agent.parent.mkdir(parents=True)
            agent.write_text(AGENT.format(python=sys.executable, calls=calls))
            agent.chmod(0o755)
            coordinator = await start_coordinator(tmp_path)
            async with living(here.dependencies()):
                await wait_until(lambda: "does not follow this node's logs" in here.logged(), "the first try fails")
                here.publish(coordinator.endpoint)
                await wait_until(lambda: len(calls_of_agent()) == 2, "the agent is told of the job")
                await wait_until(here.layout.cloudwatch_agent_config.exists, "and has taken it")
                await coordinator.present.close()  # type: ignore[union-attr]
                await wait_until(lambda: len(coordinator.hellos) == 2, "the node reconnects to the same job")
                await coordinator.stop()
                second = await start_coordinator(tmp_path, job="job-2")
                here.publish(second.endpoint)
                await wait_until(
                    lambda: any("/job-2/" in str(entries) for _, entries in calls_of_agent()),
                    "the agent is told of the next job",
                )
            await second.stop()
            options, entries = calls_of_agent()[1]
            assert options == ["-a", "append-config", "-m", "ec2", "-s", "-c"]
            assert {entry["log_group_name"] for entry in entries} == {"/dyntrain/demo"}
            assert "demo/job-1/i-0123456789abcdef0/worker" in {entry["log_stream_name"] for entry in entries}
            assert {entry["file_path"] for entry in entries} > {
                str(here.layout.log_folder / name) for name in ("node.log", "worker.log", "pslite.log")
            }

    asyncio.run(scenario())
    assert [entries[0]["log_stream_name"].split("/")[1] for _, entries in calls_of_agent()] == [
        "no-job",
        "job-1",
        "job-2",
    ]
