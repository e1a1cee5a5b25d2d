"""The node's configuration, its environment files and its counter of lives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dyntrain.controller.contract.messages import NodeConfig
from dyntrain.node_bootstrap.host.errors import InvalidConfiguration
from dyntrain.node_bootstrap.host.files import last_lines_of, write_atomically
from dyntrain.node_bootstrap.host.layout import Layout
from dyntrain.node_bootstrap.host.workers import hosts_with, write_workers
from dyntrain.node_bootstrap.instance.identity import Identity
from dyntrain.node_bootstrap.node import attempt_after, next_attempt
from dyntrain.node_bootstrap.reports.config import parse_node_config
from dyntrain.node_bootstrap.steps.environment import (
    documented_variables,
    environment_files,
    environment_is_current,
    profile_text,
    write_environment,
)
from dyntrain.training.engine import engine_name
from dyntrain.training.worker.channel.objects import source_of
from hypothesis import given
from hypothesis import strategies as st
from node_fakes import INSTANCE

GOOD = {"cluster": "demo", "mount": "/shared", "training_cmd": ["python", "train.py"]}
IDENTITY = Identity(
    INSTANCE, "10.0.0.7", "eu-west-1", "demo", base=False, master=False, tags={"aws:ec2launchtemplate:id": "lt-0abc"}
)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"mount": None}, "field mount"),
        ({"mount": "relative/path"}, "field mount"),
        ({"mount": "/"}, "field mount"),  # there already: each node's own disk
        ({"mount": "/my data", "volume": "fs-0123456789abcdef0"}, "field mount"),  # two fields of fstab
        ({"working_directory": "mine"}, "field working_directory"),  # of what?
        ({"training_cmd": [""]}, "field training_cmd"),
        ({"training_cmd": "python train.py"}, "field training_cmd"),
        ({"prepare_timeout_seconds": -1}, "field prepare_timeout_seconds"),
        ({"prepare_scrip": "/typo"}, "field prepare_scrip"),
        ({"cluster": "other"}, "field cluster"),
        ({"environment": {"A; reboot": "x"}}, "field environment"),
        ({"liveness_seconds": 1.0}, "liveness_seconds"),
        ({"progress_seconds": 30.0}, "progress_seconds"),
    ],
)
def test_bad_configuration_names_the_field(change: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        parse_node_config("demo", json.dumps({**GOOD, **change}))
    assert field in str(caught.value)
    assert "/dyntrain/demo/node" in str(caught.value)


def test_configuration_that_is_no_json_is_named() -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        parse_node_config("demo", "{")
    assert "/dyntrain/demo/node" in str(caught.value)


NASTY = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=20)


def test_profile_keeps_every_value_as_it_is(tmp_path: Path) -> None:
    """A value with quotes or $(...) must neither break people's login shells nor run."""
    values = {
        "PLAIN": "x",
        "QUOTES": """it's "so" `id` $(id) $HOME \\ !""",
        "LINES": "a\nb",
        "EMPTY": "",
        "UMLAUT": "ä",
    }
    script = tmp_path / "profile.sh"
    script.write_text(profile_text(values) + "env -0\n")
    shown = (
        subprocess.run(["sh", str(script)], capture_output=True, check=True, env={"PATH": "/usr/bin:/bin"})
        .stdout.decode()
        .split("\0")
    )
    assert {name: value for name, _, value in (item.partition("=") for item in shown) if name in values} == values


def test_environment_files_are_complete_and_writing_twice_changes_nothing(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    config = NodeConfig.model_validate(
        {**GOOD, "training_cmd": ["python", "my train.py"], "workers": 2, "environment": {"EXTRA": "1"}}
    )
    layout.workers_file.parent.mkdir(parents=True)
    layout.workers_file.write_text("10.0.0.1\n\nnonsense\n")
    wanted = environment_files(layout, IDENTITY, config, 1)
    assert not environment_is_current(wanted)
    write_environment(wanted)
    files = (layout.shell_profile.read_bytes(), layout.workers_file.read_bytes())
    assert layout.shell_profile.stat().st_mode & 0o007 == 0, "people put tokens into the environment"
    layout.shell_profile.chmod(0o644)
    assert not environment_is_current(wanted), "as an earlier version left it"
    layout.shell_profile.chmod(0o640)
    of_another = environment_files(layout, IDENTITY, config, 1, group=layout.shell_profile.stat().st_gid + 1)
    assert not environment_is_current(of_another), "the user who runs the job was changed, and could not read it"
    again = environment_files(layout, IDENTITY, config, 1)
    assert environment_is_current(again), "a reboot would write it again for nothing"
    write_environment(again)
    assert (layout.shell_profile.read_bytes(), layout.workers_file.read_bytes()) == files
    assert files[1] == b"10.0.0.1\n10.0.0.7\n"
    assert layout.shell_profile.read_text().startswith(
        profile_text(documented_variables(IDENTITY, config, layout.workers_file, 1))
    )
    script = '. "$0" && echo "$DYNTRAIN_LAUNCH_SOCKET" "$DEEPLEARNING_WORKERS_COUNT" && command -v dyntrain'

    def shell() -> list[str]:
        command = ["sh", "-c", script, str(layout.shell_profile)]
        return subprocess.run(
            command, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"}
        ).stdout.split()

    ours = str(Path(sys.executable).with_name("dyntrain"))
    assert shell() == [str(layout.launch_socket), "2", ours]
    write_workers(layout, ["10.0.0.1", "10.0.0.9", "10.0.0.7"])
    assert shell() == [str(layout.launch_socket), "3", ours], "as many as are listed, after each join"
    assert documented_variables(IDENTITY, config, layout.workers_file, 1) == {
        "DEEPLEARNING_WORKERS_PATH": str(layout.workers_file),
        "DEEPLEARNING_WORKERS_COUNT": "2",
        "DEEPLEARNING_WORKER_GPU_COUNT": "1",
        "EFS_MOUNT": "/shared",
        "AWS_REGION": "eu-west-1",
        "ELASTIC_WORKER_TAG": "demo-aws-dl-cfn-elastic-worker",
        "WORKER_LAUNCH_TEMPLATE_ID": "lt-0abc",
        "TRAINING_CMD": "python 'my train.py'",
        "EXTRA": "1",
    }
    with_data = documented_variables(
        IDENTITY, config.model_copy(update={"data_location": "s3://data/sets"}), layout.workers_file, 1
    )
    assert source_of("train", with_data) == "s3://data/sets/train/", "what the script asks for"
    on_horovod = documented_variables(IDENTITY, config.model_copy(update={"engine": "horovod"}), layout.workers_file, 1)
    assert engine_name(None, on_horovod) == "horovod"


@given(st.lists(st.ip_addresses(v=4).map(str)), st.ip_addresses(v=4).map(str))
def test_hosts_hold_this_one_once(known: list[str], own: str) -> None:
    """A host listed twice would be counted, and by a launcher started, twice."""
    hosts = hosts_with("\n".join(known), own)
    assert hosts.count(own) == 1
    assert len(set(hosts)) == len(hosts)
    assert hosts_with("\n".join(hosts), own) == hosts


RUNCLUST = """
function runclust(){ while read -u 10 host; do host=${host%% slots*}; \\
ssh -o "StrictHostKeyChecking no" $host ""$2""; done 10<$1; };
runclust $DEEPLEARNING_WORKERS_PATH "uptime"
"""


def test_people_loop_over_the_workers_with_ssh(tmp_path: Path) -> None:
    """The function is that of the predecessor's manual, which people paste. A stand-in writes down what it would do."""
    layout = Layout(tmp_path)
    write_workers(layout, ["10.0.0.7", "10.0.0.9\nProxyCommand evil", "fe80::1%evil", "10.0.0.8"])
    assert layout.workers_file.read_text() == "10.0.0.7\n10.0.0.8\n", "what is no address would reach shells and ssh"
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text('#!/bin/sh\nshift 2; echo "$@"\n')
    ssh.chmod(0o755)
    here = {"PATH": f"{ssh.parent}:{os.environ['PATH']}", "DEEPLEARNING_WORKERS_PATH": str(layout.workers_file)}
    ran = subprocess.run(["bash", "-c", RUNCLUST], env=here, capture_output=True, text=True, check=True)
    assert ran.stdout == "10.0.0.7 uptime\n10.0.0.8 uptime\n"


@pytest.mark.openssh
@pytest.mark.parametrize(("host", "policy"), [("10.0.0.8", "accept-new"), ("10.0.0.9", "ask")])
def test_the_keys_of_the_clusters_nodes_alone_are_accepted_unseen(tmp_path: Path, host: str, policy: str) -> None:
    """What the real client makes of the file."""
    write_workers(Layout(tmp_path), ["10.0.0.7", "10.0.0.8"])
    command = ["ssh", "-G", "-F", str(Layout(tmp_path).ssh_config), host]
    options = subprocess.run(command, capture_output=True, text=True, check=True).stdout.lower().splitlines()
    assert f"stricthostkeychecking {policy}" in options


def test_attempts_grow_over_lives_and_survive_a_damaged_record(tmp_path: Path) -> None:
    """The controller takes the highest attempt for the latest: a counter that falls back makes the node deaf."""
    path = tmp_path / "state/attempt"
    assert [next_attempt(path, 1e9) for _ in range(3)] == [1, 2, 3]
    path.write_text("\0\0")
    assert next_attempt(path, 1e9) == 10**9
    assert next_attempt(path, 1e9) == 10**9 + 1


@given(NASTY)
def test_any_record_gives_a_usable_attempt(recorded: str) -> None:
    assert attempt_after(recorded, 1e9) >= 1


def test_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "new \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_what_others_put_in_the_place_of_a_half_is_never_opened(tmp_path: Path) -> None:
    """Root writes to a volume that is the user's: a link would overwrite another file, a pipe hold it for ever."""
    path, other = tmp_path / "file", tmp_path / "other"
    half = tmp_path / f".file.{os.uname().nodename}.{os.getpid()}.tmp"
    other.write_text("of somebody else")
    os.link(other, half)
    write_atomically(path, "new")
    assert (path.read_text(), other.read_text()) == ("new", "of somebody else")
    os.mkfifo(half)
    write_atomically(path, "newer")
    assert path.read_text() == "newer"
    assert sorted(tmp_path.iterdir()) == [path, other]


def test_tail_is_bounded(tmp_path: Path) -> None:
    """A script may print gigabytes on one line; a report holds 2000 characters."""
    path = tmp_path / "log"
    path.write_text("x" * 100_000 + "\n" + "\n".join(f"line {number}" for number in range(100)))
    assert last_lines_of(path).splitlines() == [f"line {number}" for number in range(80, 100)]
    path.write_text("y" * 100_000)
    assert len(last_lines_of(path)) == 1500
    assert last_lines_of(path, start_byte=100_000) == ""
