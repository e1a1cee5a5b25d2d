"""The user's prepare-data script: retries, the timeout, and whose marker counts."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import pwd
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from dyntrain.controller.contract.messages import NodeConfig
from dyntrain.node_bootstrap.core.marker import Marker, MarkerFile, MarkerState, judge_marker
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.processes import Children, explain_exit
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.steps.prepare import Preparation, marker_path, read_marker, script_digest
from dyntrain.node_bootstrap.steps.run import PrepareResult
from dyntrain.training.host.reaper import run_below
from node_fakes import INSTANCE, QUICK, processes_of

IP = "10.0.0.7"
IDENTITY = Identity(INSTANCE, IP, "eu-west-1", "demo", base=False, master=False, tags={})


def prepare(directory: Path, script: str | None, attempt: int = 1, **settings: object) -> PrepareResult:
    layout = Layout(directory / "root")
    layout.state_folder.mkdir(parents=True, exist_ok=True)
    mount = directory / "shared"
    mount.mkdir(exist_ok=True)
    config = NodeConfig.model_validate(
        {"cluster": "demo", "mount": str(mount), "training_cmd": ["true"], "prepare_script": script, **settings}
    )

    async def scenario() -> PrepareResult:
        children = Children(str(layout.state_folder), attempt)
        try:
            outcome = await Preparation(config, IDENTITY, attempt, layout, children, {"GREETING": "hello"}, QUICK).run()
            assert processes_of(directory) == []  # already before the node itself stops
            return outcome
        finally:
            await children.stop_all(0.5)

    return asyncio.run(scenario())


def script(directory: Path, text: str, name: str = "prepare-data.py") -> str:
    path = directory / name
    path.write_text(text)
    return str(path)


def marker(directory: Path) -> Path:
    return marker_path(str(directory / "shared"), IP)


def test_n1_fails_twice_then_succeeds(tmp_path: Path) -> None:
    """A flaky download must not cost the instance; and people must see how often it took."""
    count = tmp_path / "count"
    outcome = prepare(
        tmp_path, script(tmp_path, f"import sys; f = open({str(count)!r}, 'a+'); f.write('x'); sys.exit(f.tell() < 3)")
    )
    assert outcome == PrepareResult(True, 3, "prepared at try 3")
    tries = [json.loads(line) for line in Layout(tmp_path / "root").prepare_tries_file.read_text().splitlines()]
    assert [(entry["attempt"], entry["number"], entry["exit_code"]) for entry in tries] == [
        (1, 1, 1),
        (1, 2, 1),
        (1, 3, 0),
    ]
    assert Marker.model_validate_json(marker(tmp_path).read_text()).exit_code == 0


def test_n2_endless_script_is_killed_with_its_children(tmp_path: Path) -> None:
    """Left-overs would go on writing to the shared volume, and keep the instance busy; even those that made a session
    of their own.
    """
    text = """
import subprocess, sys, time
sleep = [sys.executable, "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"]
subprocess.Popen(sleep)
subprocess.Popen(sleep, start_new_session=True)
print("started both", flush=True)
time.sleep(600)
"""
    outcome = prepare(tmp_path, script(tmp_path, text), prepare_timeout_seconds=4.0, prepare_attempts=1)
    assert not outcome.prepared
    assert "still running after 4 s, killed with its children" in outcome.reason
    assert "started both" in outcome.reason  # otherwise this test shows nothing
    assert processes_of(tmp_path) == []
    assert not marker(tmp_path).exists()


LEAVES = """
import subprocess, sys
sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
subprocess.Popen([*sleep, "fetches-the-rest"])
subprocess.Popen([*sleep, "serves"], start_new_session=True)
print("both run", flush=True)
"""


def test_a_script_that_leaves_processes_and_exits_0_is_not_prepared_and_is_told_by_their_names(tmp_path: Path) -> None:
    """What fetched the data in the background was killed: the node would train on half of them, and nobody knew why."""
    outcome = prepare(tmp_path, script(tmp_path, LEAVES), prepare_attempts=1)
    assert not outcome.prepared
    assert not marker(tmp_path).exists()
    first = outcome.reason.splitlines()[0]
    assert "left processes running, which were ended" in first
    assert first.count("time.sleep(600)") == 2, first
    assert "fetches-the-rest" in first
    assert "serves" in first
    assert "wait for them" in first


def test_what_ends_with_the_script_is_not_left_by_it(tmp_path: Path) -> None:
    """The other end of a shell's pipe ends a moment later than the script."""
    text = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(0.2)'])"
    assert prepare(tmp_path, script(tmp_path, text), prepare_attempts=1).prepared


def test_a_daemon_that_hides_from_its_group_and_its_environment_is_found_by_who_adopts_it(tmp_path: Path) -> None:
    """As real ones do: they make a session of their own, and write their title over their environment."""
    hidden = [sys.executable, "-c", "import time; time.sleep(600)", "hides"]
    text = f"import subprocess; subprocess.Popen({hidden!r}, start_new_session=True, env={{}})"
    path, output = script(tmp_path, text), tmp_path / "said"

    def below() -> int:
        outcome = prepare(tmp_path, path, prepare_attempts=1)
        output.write_text(f"{outcome.prepared} {outcome.reason}")
        return 0

    process = multiprocessing.get_context("fork").Process(target=lambda: sys.exit(run_below(below)))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert output.read_text().startswith("False ")
    assert "hides" in output.read_text()


def test_n3_marker_of_an_earlier_life_of_the_address_is_ignored(tmp_path: Path) -> None:
    """Addresses are used again: the data of the earlier instance is not on this one."""
    (tmp_path / "shared").mkdir()
    text = script(tmp_path, "print('ran')")
    stale = Marker(instance_id="i-00000000000000000", attempt=7, script_sha256=script_digest(text), exit_code=0, at=1.0)
    marker(tmp_path).write_text(stale.model_dump_json())
    assert prepare(tmp_path, text).tries == 1
    assert Marker.model_validate_json(marker(tmp_path).read_text()).instance_id == INSTANCE


def test_n3_stale_marker_does_not_outlive_a_failure(tmp_path: Path) -> None:
    """Scripts that only look for the file's name would take the node for prepared."""
    (tmp_path / "shared").mkdir()
    marker(tmp_path).touch()
    assert not prepare(tmp_path, script(tmp_path, "raise SystemExit(1)"), prepare_attempts=1).prepared
    assert not marker(tmp_path).exists()


@pytest.mark.parametrize("put_file", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["a pipe", "a link"])
def test_what_a_script_put_in_the_markers_place_neither_holds_nor_feeds_the_node(
    tmp_path: Path, put_file: Callable[[Path], None]
) -> None:
    """Root reads it: a pipe would never answer, and the zeros would never end. As the script, neither is anything."""
    (tmp_path / "shared").mkdir()
    put_file(marker(tmp_path))
    assert read_marker(marker(tmp_path)) == MarkerFile("", None)
    with pytest.raises(OSError, match="not a regular file"):
        script_digest(str(marker(tmp_path)))
    assert prepare(tmp_path, script(tmp_path, "print('ran')")).tries == 1
    assert Marker.model_validate_json(marker(tmp_path).read_text()).instance_id == INSTANCE
    linked = tmp_path / "linked.py"
    linked.symlink_to(tmp_path / "prepare-data.py")
    assert script_digest(str(linked)) == script_digest(str(tmp_path / "prepare-data.py")), "people link to a version"


def test_own_marker_spares_the_script_until_it_changes(tmp_path: Path) -> None:
    """A reboot must not prepare hours of data again; a mended script must run."""
    runs = tmp_path / "runs"
    path = script(tmp_path, f"open({str(runs)!r}, 'a').write('1')")
    assert prepare(tmp_path, path).tries == 1
    assert prepare(tmp_path, path, attempt=2).tries == 0
    script(tmp_path, f"open({str(runs)!r}, 'a').write('2')")
    assert prepare(tmp_path, path, attempt=3).tries == 1
    assert runs.read_text() == "12"


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (None, MarkerState.ABSENT),
        ("", MarkerState.UNREADABLE),
        ('{"instance_id": "i-0123', MarkerState.UNREADABLE),
        ('{"instance_id":"i-a","attempt":1,"script_sha256":"s","exit_code":0,"at":1.0}', MarkerState.PREPARED),
        ('{"instance_id":"i-b","attempt":1,"script_sha256":"s","exit_code":0,"at":1.0}', MarkerState.OTHER_INSTANCE),
        ('{"instance_id":"i-a","attempt":1,"script_sha256":"t","exit_code":0,"at":1.0}', MarkerState.OTHER_SCRIPT),
        ('{"instance_id":"i-a","attempt":1,"script_sha256":"s","exit_code":1,"at":1.0}', MarkerState.FAILED),
    ],
)
def test_marker_counts_only_for_its_instance_and_script(text: str | None, verdict: MarkerState) -> None:
    assert judge_marker(None if text is None else MarkerFile(text, None), "i-a", "s") is verdict


@pytest.mark.parametrize(
    ("made_at", "launched_at", "verdict"),
    [
        (20.0, 10.0, MarkerState.BY_HAND),
        (5.0, 10.0, MarkerState.STALE),
        (20.0, None, MarkerState.UNDATED),
        (None, 10.0, MarkerState.UNREADABLE),  # a link: nobody's word
    ],
)
def test_an_empty_marker_is_a_persons_word_about_this_launch_alone(
    made_at: float | None, launched_at: float | None, verdict: MarkerState
) -> None:
    """Other launchers left empty markers, and addresses are used again."""
    assert judge_marker(MarkerFile("", made_at), "i-a", "s", launched_at) is verdict


def test_nothing_to_prepare_is_prepared_at_once(tmp_path: Path) -> None:
    assert prepare(tmp_path, None) == PrepareResult(True, 0, "nothing to prepare")
    assert Marker.model_validate_json(marker(tmp_path).read_text()).script_sha256 is None


def test_a_volume_that_takes_no_marker_is_a_failure_that_says_so_without_a_script_too(tmp_path: Path) -> None:
    """Else the node ends, is started and ends again, and nobody hears of it."""
    (tmp_path / "shared").mkdir()
    marker(tmp_path).mkdir()
    outcome = prepare(tmp_path, None, prepare_attempts=2)
    assert not outcome.prepared
    assert f"Is a directory: {marker(tmp_path)}" in outcome.reason


def test_missing_script_is_a_failure_that_says_so(tmp_path: Path) -> None:
    """It may appear with the volume, so it is tried again; and then the status must name the path."""
    outcome = prepare(tmp_path, str(tmp_path / "nowhere.py"), prepare_attempts=2)
    assert (outcome.prepared, outcome.tries) == (False, 2)
    assert "nowhere.py" in outcome.reason


def test_shell_script_runs_by_itself_in_the_volume_with_the_environment(tmp_path: Path) -> None:
    path = script(tmp_path, "#!/bin/sh\necho $GREETING > made-here\n", "prepare.sh")
    assert "cannot be executed (exit code 126)" in prepare(tmp_path, path, prepare_attempts=1).reason
    os.chmod(path, 0o700)
    assert prepare(tmp_path, path).prepared
    assert (tmp_path / "shared/made-here").read_text() == "hello\n"


def test_reason_is_bounded_and_ends_with_the_last_words(tmp_path: Path) -> None:
    """A report with a longer reason would be refused, and nobody would learn of the failure."""
    outcome = prepare(
        tmp_path,
        script(tmp_path, "for n in range(9999): print('x' * 200, n)\nraise SystemExit('out of disk')"),
        prepare_attempts=1,
    )
    assert len(outcome.reason) <= 2000
    assert outcome.reason.endswith("out of disk")


def test_explain_names_signals() -> None:
    assert explain_exit(-9, 1.0) == "killed by SIGKILL"
    assert explain_exit(-63, 1.0) in ("killed by signal 63", "killed by SIGRTMAX-1")
    assert explain_exit(0, 1.0) == ""


def test_script_with_another_digest_is_not_run(tmp_path: Path) -> None:
    """Whoever can write to the volume could otherwise run anything on every node."""
    path = script(tmp_path, "open('ran', 'w')")
    outcome = prepare(tmp_path, path, prepare_sha256="0" * 64, prepare_attempts=1)
    assert (outcome.prepared, (tmp_path / "shared/ran").exists()) == (False, False)
    assert "not the one in the field prepare_sha256" in outcome.reason
    assert prepare(tmp_path, path, prepare_sha256=script_digest(path), prepare_attempts=1).prepared


def test_script_runs_as_the_user_that_is_named(tmp_path: Path) -> None:
    """With that user's groups too: those of root would still open root's files."""
    name = "nobody" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    groups = os.getgroups()
    if os.getuid() == 0:
        os.setgroups([4242])
    try:
        prepare(tmp_path, shutil.which("id"), prepare_user=name, prepare_attempts=1)
    finally:
        if os.getuid() == 0:
            os.setgroups(groups)
    output = "".join(path.read_text() for path in Layout(tmp_path / "root").log_folder.glob("prepare-*.log"))
    assert output.startswith(f"uid={pwd.getpwnam(name).pw_uid}({name}) gid={pwd.getpwnam(name).pw_gid}(")
    assert "4242" not in output


def test_logs_of_long_ago_are_dropped(tmp_path: Path) -> None:
    """Each start of a node makes one."""
    path = script(tmp_path, "raise SystemExit(1)")
    logs = Layout(tmp_path / "root").log_folder
    for attempt in (1, 2, 6, 7):
        assert not prepare(tmp_path, path, attempt, prepare_attempts=1).prepared
    assert sorted(path.name for path in logs.glob("prepare-*")) == ["prepare-6.log", "prepare-7.log"]


def test_unknown_user_is_a_failure_that_says_so(tmp_path: Path) -> None:
    outcome = prepare(tmp_path, shutil.which("id"), prepare_user="nobody-of-this-name", prepare_attempts=1)
    assert "cannot run as nobody-of-this-name: there is no such user" in outcome.reason
