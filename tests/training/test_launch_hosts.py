"""Host files as people have them, for `-H` and for edits of `host_worker`.

What would break for a user: a list that other launchers take is refused without its line, ssh goes to another port than
the file says, or the other hosts are told an address at which nobody answers.
"""

from __future__ import annotations

import codecs
import logging
import os
import socket
from pathlib import Path

import pytest
from dyntrain.training.coordinator.host_log import HOST_FILE
from dyntrain.training.launch import hosts, plan
from dyntrain.training.launch.command import node_command
from dyntrain.training.launch.host_file import FileHosts
from dyntrain.training.launch.hosts import HostError, address_of, decode_text, lines_of, reachable_address
from dyntrain.training.launch.plan import LaunchError, LaunchPlan, parse

A, B, C = "127.0.0.1", "127.0.0.2", "127.0.0.3"
FAR, NEAR = "198.51.100.1", "198.51.100.2"  # of documents, which no network has
PLAIN = f"{A}\n{B}\n"


@pytest.fixture(autouse=True)
def _near(monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine is NEAR to the other hosts, whatever its network."""
    here = hosts.is_local_address
    monkeypatch.setattr(plan, "is_local_address", lambda address: address == NEAR or here(address))
    monkeypatch.setattr(hosts, "address_towards", lambda address: NEAR)


def plan_of(folder: Path, content: bytes, *more: str, n: int = 2) -> LaunchPlan:
    file = folder / "hosts"
    file.write_bytes(content)
    return parse(["-n", str(n), "-H", str(file), *more, "true"])


@pytest.mark.parametrize(
    "content",
    [
        PLAIN.encode(),
        f"{A} slots=4 max_slots=8\n{B} slots=1\n".encode(),
        f"# the hosts\n\n{A}   # the master\n{B}\n".encode(),
        PLAIN.replace("\n", "\r\n").encode(),
        codecs.BOM_UTF8 + PLAIN.encode(),
        PLAIN.encode("utf-16"),
        codecs.BOM_UTF16_BE + PLAIN.replace("\n", "\r\n").encode("utf-16-be"),
        f"{A}:22\n{B}:2222".encode(),
        f"ubuntu@{A}\nubuntu@{B}:2222\n".encode(),
    ],
    ids=["plain", "slots", "comments", "crlf", "bom", "utf-16", "utf-16-be", "ports", "users"],
)
def test_every_common_form_names_the_same_hosts(tmp_path: Path, content: bytes) -> None:
    assert plan_of(tmp_path, content).hosts == (A, B)
    edited = FileHosts(tmp_path, [A, B], clock=iter(range(100)).__next__)
    (tmp_path / HOST_FILE).write_bytes(content.rstrip(b"\n") + (b"\n" if b"\0" not in content else b""))
    for _ in range(5):
        edited.read_target()
    assert edited.hosts == (A, B), "an edit in any form is the same edit"


def test_ssh_is_given_the_name_user_and_port_as_they_are_written(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, f"localhost\nubuntu@{B}:2222\n".encode())
    assert node_command(plan, plan.destinations[A], tmp_path)[-3:-1] == ["--", "localhost"]
    assert node_command(plan, plan.destinations[B], tmp_path)[-5:-1] == ["-p", "2222", "--", f"ubuntu@{B}"]


def test_a_name_of_sshs_settings_is_looked_up_where_ssh_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else knows the name `ps-0`: not DNS, not the other hosts."""
    ssh = tmp_path / "bin" / "ssh"
    ssh.parent.mkdir()
    ssh.write_text(
        f'#!/bin/sh\n[ "$1 $2" = "-G --" ] || exit 1\n[ "$3" = ps-0 ] && set -- . . {B}\n'
        'echo "user ubuntu"\necho "hostname $3"\n'
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}{os.pathsep}{os.environ['PATH']}")
    plan = plan_of(tmp_path, f"{A}\nps-0\n".encode())
    assert (plan.hosts, plan.destinations[B]) == ((A, B), ("--", "ps-0"))
    with pytest.raises(LaunchError, match="'ps-0' cannot be looked up"):
        plan_of(tmp_path, f"{A}\nps-0\n".encode(), "--launcher", "local")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"{A}\nbad..name\n".encode(), "line 2: 'bad..name' cannot be looked up"),
        (f"{A}\n10.0.0\n".encode(), "line 2: '10.0.0' cannot be looked up"),
        (f"# one\n{A}:port\n".encode(), r"line 2: '127.0.0.1:port' has no port"),
        (f"{A}:70000\n".encode(), "has no port"),
        (f"{A}\nhöst\n".encode("latin-1"), "is no text in UTF-8 or UTF-16"),
        (f"{A}\n".encode("utf-16-le"), "zero bytes"),
        (f"{A}\n{A} slots=2\n".encode(), "names only 1 different hosts, but -n asks for 2"),
    ],
)
def test_what_cannot_be_read_is_told_with_file_and_line(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(LaunchError, match=message) as caught:
        plan_of(tmp_path, content)
    assert str(tmp_path / "hosts") in str(caught.value)


def test_the_launcher_finds_which_of_the_hosts_it_is(tmp_path: Path) -> None:
    """DT's chapter lists the master last."""
    plan = plan_of(tmp_path, f"{FAR}\n{NEAR}\n".encode(), "--host", "10.9.9.9")
    assert (plan.host, plan.master) == ("10.9.9.9", NEAR), "what a person gives counts"
    plan = plan_of(tmp_path, f"{FAR}\n{NEAR}\n".encode())
    assert (plan.hosts, plan.host, plan.master) == ((FAR, NEAR), NEAR, NEAR)
    plan = plan_of(tmp_path, f"{FAR}\n{NEAR}\n".encode(), n=1)
    assert (plan.hosts, plan.host) == ((FAR,), NEAR), "also where it is no base host"


def test_a_list_without_this_machine_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="does not name this machine"):
        plan_of(tmp_path, f"{FAR}\n".encode(), n=1)


def test_other_hosts_are_never_told_a_loopback_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian maps a machine's own name to 127.0.1.1."""
    monkeypatch.setattr(socket, "gethostbyname", lambda name: "127.0.1.1" if name == "master" else FAR)
    plan = plan_of(tmp_path, b"other\nmaster\n")
    assert (plan.hosts, plan.host) == ((FAR, NEAR), NEAR), "at which the other host reaches this one"
    assert plan.destinations[NEAR] == ("--", "master")


def test_hosts_that_are_all_here_keep_their_loopback_addresses() -> None:
    assert reachable_address(A, [A, B]) == A


def test_an_edit_may_name_hosts_as_the_host_file_does(tmp_path: Path) -> None:
    known = {"worker-1": C}
    edited = FileHosts(
        tmp_path, [A, B], clock=iter(range(100)).__next__, look_up=lambda name: known.get(name) or str(name)
    )
    (tmp_path / HOST_FILE).write_text(f"{A}\n{B}\nubuntu@worker-1:2222 slots=2  # the new one\n")
    for _ in range(5):
        edited.read_target()
    assert edited.hosts == (A, B, C)
    assert edited.destination(C) == ("-p", "2222", "--", "ubuntu@worker-1")


def slots_of(plan: LaunchPlan) -> list[int]:
    return [plan.workers_per_node or plan.slots.get(host) or 1 for host in plan.hosts]


def test_slots_say_how_many_workers_a_host_has_as_for_horovodrun(tmp_path: Path) -> None:
    """With ps-lite the same line, as the Deep Learning AMI has it, stands for one worker with all GPUs."""
    content = f"{A} slots=4 max_slots=8\n{B}\n".encode()
    assert slots_of(plan_of(tmp_path, content)) == [1, 1]
    assert slots_of(plan_of(tmp_path, content, "--workers-per-node", "slots")) == [4, 1]
    assert slots_of(plan_of(tmp_path, content, "--engine", "horovod")) == [4, 1]
    assert slots_of(plan_of(tmp_path, content, "--engine", "horovod", "--workers-per-node", "2")) == [2, 2]


@pytest.mark.parametrize("text", ["0", "65", "four", "-1", ""])
def test_what_is_no_number_of_workers_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(LaunchError, match=r"--workers-per-node .*: must be slots, or between 1 and 64"):
        plan_of(tmp_path, PLAIN.encode(), f"--workers-per-node={text}")
    with pytest.raises(LaunchError, match=f"line 1: slots={text}: write a number from 1 to 64"):
        plan_of(tmp_path, f"{A} slots={text}\n{B}\n".encode())


def test_an_edit_says_how_many_workers_the_new_host_has(tmp_path: Path) -> None:
    edited = FileHosts(tmp_path, [A], clock=iter(range(100)).__next__, slots={A: 2})
    (tmp_path / HOST_FILE).write_text(f"{A}\n{B} slots=3\n{C}\n")
    for _ in range(5):
        edited.read_target()
    assert [edited.slots(host) for host in edited.hosts] == [2, 3, None]


def test_an_edit_that_is_refused_is_told_with_its_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    edited = FileHosts(tmp_path, [A, B], clock=iter(range(100)).__next__)
    (tmp_path / HOST_FILE).write_text(f"{A}\n# more\n{B}\nps-9\n")
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            edited.read_target()
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / HOST_FILE} line 4: 'ps-9' is no host: write an address, or a name that can be looked up here; "
        "the membership stays as it is"
    ]


def test_half_an_address_is_nobodys() -> None:
    """The system's resolver takes 10.0.0 for 10.0.0.0, which half-written files are full of."""
    with pytest.raises(ValueError, match="no address"):
        address_of("10.0.0", by_ssh=False)


def test_addresses_of_ipv6_have_their_colons() -> None:
    named = [(line.host, line.port) for line in lines_of("::1\n[::1]:22\n[fe80::1]\nfe80::2\n", "f")]
    assert named == [("::1", None), ("::1", 22), ("fe80::1", None), ("fe80::2", None)]


def test_bytes_that_are_no_text_are_an_error_with_a_reason() -> None:
    with pytest.raises(ValueError, match="zero bytes"):
        decode_text(b"1\x002\x00")
    assert issubclass(HostError, ValueError)
