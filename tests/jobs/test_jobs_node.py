"""What travels to a job's machines: its size and its Python, the code, and what a node decides by itself."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

import pytest
from dyntrain.controller.contract.errors import Misconfigured
from dyntrain.controller.contract.job_files import FAILED, INTERRUPTED, SUCCEEDED, Exit, alive_key
from dyntrain.controller.jobs.submission.code import pack
from dyntrain.controller.jobs.submission.user_data import (
    LIMIT_BYTES,
    PROGRAM_FILES,
    minify_source,
    program_of,
    user_data,
    zip_program,
)
from dyntrain.controller.local.pace import patient
from dyntrain.node_bootstrap.job.command import CommandFailed, UserAccount, unpack, unpack_without_filter
from dyntrain.node_bootstrap.job.plan import (
    SILENT_SECONDS,
    START_SECONDS,
    JobPlan,
    environment,
    exit_of_command,
    exit_of_lost_rank,
    verdict_of,
)
from dyntrain.node_bootstrap.job.program import Node
from waiting import wait_for

LONGEST = user_data("n" * 48, "0123456789ab-100", "b" * 63, "ap-southeast-2", 24.0 * 28)


SOURCE = '''"""Of the module."""

import os  # why


class Empty:
    """Nothing else."""


def text() -> str:
    """Of two

    lines."""
    # a comment
    return "# no comment" + """and # none"""
'''
CODE = '''

import os


class Empty:
    pass


def text() -> str:




    return "# no comment" + """and # none"""
'''


def test_the_program_has_no_comments_and_its_lines_keep_their_numbers() -> None:
    assert minify_source(SOURCE) == CODE
    for name in PROGRAM_FILES:
        source = files("dyntrain").joinpath(name).read_text(encoding="utf-8")
        assert statements(minify_source(source)) == statements(source), name


def statements(source: str) -> list[tuple[str, int]]:
    """Each statement that is no string, with its line."""
    return [
        (type(node).__name__, node.lineno)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.stmt) and not isinstance(node, ast.Pass)
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
    ]


def test_user_data_stays_below_ec2s_limit_with_the_longest_names_and_is_the_same_each_time() -> None:
    assert len(LONGEST.encode()) < LIMIT_BYTES
    assert user_data("n" * 48, "0123456789ab-100", "b" * 63, "ap-southeast-2", 24.0 * 28) == LONGEST
    parts = program_of(LONGEST)
    assert parts is not None
    assert parts[0] == zip_program()
    assert parts[1][0] == "--name=" + "n" * 48


def test_bash_takes_the_user_data() -> None:
    done = subprocess.run(
        ["bash", "-n"], input=LONGEST, text=True, capture_output=True, check=False, timeout=patient(60)
    )
    assert (done.returncode, done.stderr) == (0, "")


def preparation() -> str:
    """What the user data does about boto3."""
    start = LONGEST.index("if ! python3 -c 'import boto3")
    return LONGEST[start : LONGEST.index("\nfi\n", start) + 4]


def test_a_boto3_that_cannot_write_a_verdict_once_is_not_used(tmp_path: Path) -> None:
    check = preparation().partition("'")[2].partition("'")[0]
    for version, code in (("1.35.99", 1), ("1.36.0", 0), ("1.44.5", 0), ("2.0.1", 0), (None, 1)):
        (tmp_path / "boto3.py").write_text("raise ImportError" if version is None else f"__version__ = '{version}'")
        done = subprocess.run(
            [sys.executable, "-c", check], cwd=tmp_path, capture_output=True, check=False, timeout=patient(60)
        )
        assert done.returncode == code, version


def test_packages_of_the_image_that_cannot_be_had_at_once_are_tried_again(tmp_path: Path) -> None:
    stubs = """
dir=$PWD
python3() {
  [ "$1" = -c ] && return 1
  echo >> calls
  [ $(wc -l < calls) -gt 3 ] || return 1
  mkdir -p tools/bin
  printf '#!/bin/sh\necho $* > installed\n' > tools/bin/python
  chmod +x tools/bin/python
}
apt-get() { return 100; }
sleep() { :; }
"""
    subprocess.run(["bash", "-c", stubs + preparation()], cwd=tmp_path, check=True, timeout=patient(60))
    assert (tmp_path / "installed").read_text() == "-m pip install -q boto3>=1.36\n"


def test_other_user_data_is_not_taken_for_a_jobs() -> None:
    assert program_of("#!/bin/bash\necho dyntrain-job\n") is None


@pytest.mark.parametrize("name", PROGRAM_FILES)
def test_the_program_is_python_as_old_as_amazon_linux_has_and_imports_nothing_but_itself_and_boto(name: str) -> None:
    tree = ast.parse(files("dyntrain").joinpath(name).read_text(encoding="utf-8"), feature_version=(3, 9))
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {module for module in imported if module.startswith("dyntrain")}
    with zipfile.ZipFile(io.BytesIO(zip_program())) as zipped:
        there = {entry.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for entry in zipped.namelist()}
    assert ours - there <= {"dyntrain.controller.contract", "dyntrain.node_bootstrap.job"}
    assert ours <= there


def test_the_same_files_give_the_same_archive_and_what_is_ignored_stays_at_home(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder / "data").mkdir(parents=True)
        (tmp_path / folder / "artifacts").mkdir()
        (tmp_path / folder / ".git").mkdir()
        for name in ("train.py", "b.py", "data/big.bin", "data/keep.bin", "artifacts/old.ckpt", ".git/config", "x.log"):
            (tmp_path / folder / name).write_text(name)
        (tmp_path / folder / "train.py").chmod(0o755)
        (tmp_path / folder / ".dyntrainignore").write_text("# no data\n*.log\n/data/*.bin\n!/data/keep.bin\n")
    one, two = pack(tmp_path / "one"), pack(tmp_path / "two")
    assert (one.content, one.digest) == (two.content, two.digest)
    assert one.content[4:8] == b"\0\0\0\0", "gzip's own header has no date either"
    with tarfile.open(fileobj=io.BytesIO(one.content)) as tar:
        assert tar.getnames() == [".dyntrainignore", "b.py", "data/keep.bin", "train.py"]
        assert tar.getmember("train.py").mode == 0o755
    unpack_to = tmp_path / "unpacked"
    (tmp_path / "code.tar.gz").write_bytes(one.content)
    unpack(tmp_path / "code.tar.gz", unpack_to)
    assert (unpack_to / "data/keep.bin").read_text() == "data/keep.bin"


def test_what_stays_at_home_is_what_git_would_leave_out(tmp_path: Path) -> None:
    """Witness: git itself, given the same file."""
    lines = "# all|*.log|!kept.log|/data/*.bin|weights/|runs/**/old|**/cache/*|\\#odd|blank\\ |x[0-9].csv"
    for name in (
        "a.log", "deep/b.log", "deep/kept.log", "data/a.bin", "data/deep/a.bin", "src/data/a.bin", "weights/w",
        "src/weights", "runs/old", "runs/1/2/old", "runs/1/2/new", "src/cache/a", "cache/b/c", "#odd", "blank ",
        "x1.csv", "xy.csv",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".dyntrainignore").write_text("\n".join(lines.split("|")))
    subprocess.run(["git", "init", "-q", tmp_path], check=True, timeout=patient(60))
    listed = subprocess.run(
        ["git", "-C", tmp_path, "ls-files", "-z", "--others", "--exclude-from=.dyntrainignore"],
        check=True, capture_output=True, text=True, timeout=patient(60),
    )  # fmt: skip
    with tarfile.open(fileobj=io.BytesIO(pack(tmp_path).content)) as tar:
        assert sorted(tar.getnames()) == sorted(filter(None, listed.stdout.split("\0")))


def test_code_over_the_limit_is_refused_by_the_name_of_what_is_too_large(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("x")
    (tmp_path / "weights.bin").write_bytes(b"x" * 2000)
    with pytest.raises(Misconfigured, match=r"weights\.bin.*\.dyntrainignore"):
        pack(tmp_path, limit=1000)
    with pytest.raises(Misconfigured, match="no folder"):
        pack(tmp_path / "nowhere")


def test_an_archive_that_would_write_outside_its_folder_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "code.tar"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(tarfile.TarInfo("../outside"), io.BytesIO())
    with pytest.raises(CommandFailed, match=r"cannot be unpacked|is not taken"):
        unpack(archive, tmp_path / "code")
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("../outside", tarfile.REGTYPE), ("link", tarfile.SYMTYPE), ("hard", tarfile.LNKTYPE), ("disk", tarfile.BLKTYPE)],
)
def test_a_python_without_the_filter_takes_files_and_folders_of_the_folder_alone(
    tmp_path: Path, name: str, kind: bytes
) -> None:
    (tmp_path / "code").mkdir()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("train.py"), io.BytesIO())
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, "/etc/passwd"
        tar.addfile(entry)
    packed.seek(0)
    with tarfile.open(fileobj=packed) as tar, pytest.raises(CommandFailed, match="is a link or outside path"):
        unpack_without_filter(tar, tmp_path / "code")
    assert not list((tmp_path / "code").iterdir())
    assert not (tmp_path / "outside").exists()


PLAN = JobPlan(
    "mnist", "0123456789ab-1", 2, 7777, ["x"], {"A": "b", "PATH": "/conda/bin"}, "artifacts", "", False, 60.0
)


def test_the_command_finds_the_topology_and_what_the_person_gave_and_nothing_of_roots() -> None:
    inherited = {"PATH": "/bin", "SECRET": "root's", "AWS_ENDPOINT_URL": "http://x"}
    env = environment(PLAN, inherited, "/job/venv/bin:/conda/bin", 1, "10.0.0.4", "/h")
    assert env == {
        "PATH": "/job/venv/bin:/conda/bin",
        "AWS_ENDPOINT_URL": "http://x",
        "HOME": "/h",
        "PYTHONUNBUFFERED": "1",
        "A": "b",
        "JOB_ID": "mnist",
        "NODE_RANK": "1",
        "NUM_NODES": "2",
        "MASTER_ADDR": "10.0.0.4",
        "MASTER_PORT": "7777",
    }
    assert environment(PLAN._replace(resumed=True), {}, "/bin", 1, "10.0.0.4", "/h")["RESUMED"] == "1"


def test_the_last_that_succeeds_speaks_for_all_and_one_that_fails_speaks_at_once() -> None:
    done = exit_of_command(1, 0, 5.0, "")
    assert verdict_of(done, {1: 0}, 2) is None
    verdict = verdict_of(done, {0: 0, 1: 0}, 2)
    assert verdict is not None
    assert verdict.verdict == SUCCEEDED
    failed = exit_of_command(0, -9, 5.0, "Traceback")
    assert verdict_of(failed, {}, 2) == failed
    assert (failed.reason, failed.tail) == ("the command of rank 0 ended with signal 9", "Traceback")
    assert verdict_of(Exit(INTERRUPTED, 0, None, "", 5.0), {}, 2) is not None


def test_a_rank_that_falls_silent_ends_the_job_and_one_that_is_done_or_slow_to_boot_does_not() -> None:
    own = 1000.0
    assert exit_of_lost_rank(0, 3, {0: own, 1: own - SILENT_SECONDS + 1, 2: own}, set(), 60.0, own) is None
    assert exit_of_lost_rank(0, 3, {0: own, 1: 0.0, 2: own}, {1}, 60.0, own) is None
    silent = exit_of_lost_rank(0, 3, {0: own, 1: own - SILENT_SECONDS - 1, 2: own}, set(), 60.0, own)
    assert silent is not None
    assert (silent.verdict, silent.rank) == (FAILED, 1)
    assert exit_of_lost_rank(0, 2, {0: own}, set(), START_SECONDS - 1, own) is None
    never = exit_of_lost_rank(0, 2, {0: own}, set(), START_SECONDS + 1, own)
    assert never is not None
    assert "no sign of life" in never.reason


Until = Callable[[Any], bool]


class Recorder:
    """A bucket and what it was told, in order; a metadata service that knows the master; output that goes nowhere."""

    path = Path("output.log")

    def __init__(self, code: Path, notice: Path | None = None, slow: Until | None = None) -> None:
        self.calls: list[str] = []
        self.keys: list[str] = []
        self.ends: list[Exit] = []
        self.saved_at: list[bool] = []  # whether the command had ended when a verdict was told
        self._code, self._notice, self._slow = code, notice, slow
        self.lines: list[str] = []
        self.busy = 0  # how often the last artifact cannot be saved

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            self.calls.append(name)
            self.ends += [one for one in arguments if isinstance(one, Exit)]
            self.keys += [one for one in arguments if isinstance(one, str)]
            if name == "write_verdict" and self._notice is not None:
                self.saved_at.append((self._notice.parent / "saved").exists())
            return {"exit_codes": {0: 0}, "signs_of_life": ({}, set())}.get(name)

        return call

    def save_artifacts(self, folder: Path) -> int:
        self.calls.append("save_artifacts")
        if self.busy and (folder / "last").exists():
            self.busy -= 1
            raise OSError("the network is busy")
        return 1

    def download(self, key: str, path: Path) -> None:
        path.write_bytes(self._code.read_bytes())
        if self._slow is not None:
            slow = self._slow
            wait_for(lambda: slow(self), 30.0, "what the node does while it is being made ready")

    def get(self, path: str) -> str | None:
        """The notice is there as soon as its file is."""
        return "{}" if self._notice is not None and self._notice.exists() and path.startswith("spot/") else None

    def wait_for(self, path: str, seconds: float) -> str:
        return "10.0.0.4"

    def say(self, text: str) -> None:
        self.lines.append(text)

    def copy(self, source: IO[bytes]) -> None:
        self.lines += source.read().decode().splitlines()

    def tail(self) -> list[str]:
        return self.lines


def ended(
    tmp_path: Path, script: str, *, notice: Path | None = None, slow: Until | None = None, busy: int = 0, **changes: Any
) -> tuple[Recorder, Exit]:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(script)
    (tmp_path / "packed").write_bytes(pack(tmp_path / "code").content)
    recorder: Any = Recorder(tmp_path / "packed", notice, slow)
    recorder.busy = busy
    plan = PLAN._replace(**{"nodes": 1, "command": ["python3", "train.py"], "env": {}, **changes})
    node = Node(recorder, plan, 0, recorder, recorder, tmp_path / "node", beat=0.02, retry=0.0)
    (tmp_path / "node").mkdir()
    end = node.run(UserAccount(None))
    node.finish(end)
    return recorder, end


def test_the_others_are_told_of_a_failure_before_the_artifacts_are_saved(tmp_path: Path) -> None:
    recorder, end = ended(tmp_path, "import sys; print('the loss is NaN'); sys.exit(3)")
    assert (end.verdict, end.code, end.tail.splitlines()[-1]) == (FAILED, 3, "the loss is NaN")
    assert (
        recorder.calls.index("write_verdict") < len(recorder.calls) - recorder.calls[::-1].index("save_artifacts") - 1
    )


def test_success_is_told_when_all_is_saved(tmp_path: Path) -> None:
    recorder, end = ended(tmp_path, "print('fine')")
    assert (end.verdict, recorder.ends[-1].reason) == (SUCCEEDED, "all 1 ranks ended with exit code 0")
    assert (
        recorder.calls.index("save_artifacts") < recorder.calls.index("upload") < recorder.calls.index("write_verdict")
    )


def test_a_node_shows_that_it_lives_while_packages_and_files_take_longer_than_the_others_wait(tmp_path: Path) -> None:
    alive = alive_key(PLAN.name, PLAN.run, 0)
    recorder, end = ended(tmp_path, "", slow=lambda recorder: recorder.keys.count(alive) > 2)
    assert (end.verdict, recorder.ends[-1].verdict) == (SUCCEEDED, SUCCEEDED)


def test_an_interruption_while_a_node_is_made_ready_is_told_before_the_machine_is_gone(tmp_path: Path) -> None:
    recorder, _end = ended(
        tmp_path, "import time; time.sleep(600)", notice=tmp_path, slow=lambda recorder: bool(recorder.ends)
    )
    assert recorder.ends[0].verdict == INTERRUPTED


def test_an_interruption_is_told_first_and_ends_all_that_the_command_started_with_time_to_save(tmp_path: Path) -> None:
    """First: the other ranks fail as soon as this one's command ends, and the first verdict counts."""
    script = """
import signal, subprocess, sys, time
def save(*_):
    open("artifacts/saved", "w").close()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
subprocess.Popen(["sh", "-c", "trap '' TERM; echo $$ > artifacts/ready; exec sleep 600"])
time.sleep(600)
"""
    artifacts = tmp_path / "node" / "code" / "artifacts"
    recorder, end = ended(tmp_path, script, notice=artifacts / "ready")
    assert (end.verdict, recorder.ends[0].verdict) == (INTERRUPTED, INTERRUPTED)
    assert recorder.saved_at[0] is False
    assert (artifacts / "saved").exists()
    child = Path("/proc", (artifacts / "ready").read_text().strip(), "stat")
    wait_for(lambda: not child.exists() or ") Z " in child.read_text(), 30.0, "the command's own process is gone")


def test_a_command_over_its_hours_is_ended(tmp_path: Path) -> None:
    _recorder, end = ended(tmp_path, "import time; time.sleep(600)", seconds=0.0)
    assert "more than its 0 hours" in end.reason


def test_artifacts_that_could_not_be_saved_at_the_end_are_tried_again(tmp_path: Path) -> None:
    recorder, _end = ended(tmp_path, "open('artifacts/last', 'w')", busy=2)
    assert (recorder.busy, recorder.lines[-1]) == (0, "1 artifacts saved")
    assert recorder.calls.count("upload") == 1, "the output is saved all the same"


def test_a_command_that_is_not_there_fails_the_job_with_a_sentence(tmp_path: Path) -> None:
    _recorder, end = ended(tmp_path, "", command=["no-such-program"])
    assert (end.verdict, end.code) == (FAILED, None)
    assert "the command cannot be started" in end.reason
