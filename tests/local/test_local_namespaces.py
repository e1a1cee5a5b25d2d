"""Hosts as network namespaces: made, reached, cut off, and gone again whatever happened to their owner. Needs root and
iproute2.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from dyntrain.controller.local.machines.namespaces import Namespaces, NamespacesUnavailable, remove_abandoned_networks
from dyntrain.controller.local.pace import patient

pytestmark = pytest.mark.hosts
SAY = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3]))
sys.stdout.write(s.getsockname()[0])
"""
OWNER = """
import os
from dyntrain.controller.local.machines.namespaces import Namespaces
n = Namespaces()
n.start()
n.command_prefix('i-1', n.addresses[0])
os.abort()
"""


def there() -> set[str]:
    named = Path("/run/netns")
    return {path.name for path in [*Path("/sys/class/net").iterdir(), *(named.iterdir() if named.exists() else ())]}


@pytest.fixture
def network() -> Iterator[Namespaces]:
    namespaces = Namespaces()
    namespaces.start()
    yield namespaces
    namespaces.stop()


def knock(network: Namespaces, host: str, within: float | None = None) -> str:
    """The address from which the host reached this side, or the error's name. A packet that is lost while a link
    comes up is sent again by the kernel, after 1, 3 and 7 seconds: whoever is to come through has time for that.
    """
    within = within or patient(10)
    with socket.create_server((network.gateway, 0)) as server:
        where = network.command_prefix(host, network.addresses[0])
        argv = [*where, sys.executable, "-c", SAY, network.gateway, str(server.getsockname()[1]), str(within)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=within + patient(30), check=False)
        return done.stdout or done.stderr.strip().rpartition("\n")[2]


def test_a_host_reaches_the_gateway_until_its_link_is_cut_and_again_when_it_is_mended(network: Namespaces) -> None:
    assert knock(network, "i-1") == network.addresses[0]
    assert network.cut_link("i-1")
    assert "timed out" in knock(network, "i-1", within=1)
    assert network.mend_link("i-1")
    assert knock(network, "i-1") == network.addresses[0]


def speeds(network: Namespaces, host: str) -> list[str]:
    """What the kernel says of the link's two ends."""
    outputs = [
        subprocess.run(
            [*where, "tc", "qdisc", "show", "dev", device], capture_output=True, text=True, check=True
        ).stdout
        for where, device in (((), network.link_of(host) or ""), (network.command_prefix(host, ""), "eth0"))
    ]
    return [rate[1] for one in outputs if (rate := re.search(r"tbf .*rate (\S+)", one))]


def test_a_link_is_slow_in_both_directions_until_it_is_fast_again(network: Namespaces) -> None:
    assert knock(network, "i-1") == network.addresses[0]
    assert speeds(network, "i-1") == []
    assert network.slow_link("i-1", 5)
    assert network.slow_link("i-1", 20)
    assert speeds(network, "i-1") == ["20Mbit", "20Mbit"]
    assert knock(network, "i-1") == network.addresses[0]
    assert network.speed_up_link("i-1")
    assert speeds(network, "i-1") == []


def test_an_unknown_host_cannot_be_cut_or_removed(network: Namespaces) -> None:
    network.remove("i-9")
    assert not network.cut_link("i-9")
    assert not network.slow_link("i-9", 5)
    assert network.link_of("i-9") is None


def test_a_host_that_cannot_be_made_whole_is_not_there_at_all(network: Namespaces) -> None:
    before = there()
    with pytest.raises(NamespacesUnavailable, match="no-address"):
        network.command_prefix("i-1", "no-address")
    assert there() == before
    assert knock(network, "i-1") == network.addresses[0], "it can be made afterwards"


def test_nothing_is_left_of_a_network_that_was_stopped() -> None:
    network = Namespaces()
    network.start()
    network.command_prefix("i-1", network.addresses[0])
    assert any(name.startswith(network.name) for name in there())
    network.stop()
    network.stop()
    assert not any(name.startswith(network.name) for name in there())


def test_what_a_killed_owner_left_is_swept_and_what_a_living_one_has_is_not(network: Namespaces) -> None:
    network.command_prefix("i-1", network.addresses[0])
    dead = subprocess.Popen([sys.executable, "-c", OWNER], stderr=subprocess.DEVNULL)
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # it stays in /proc, as for a shell that is busy
    left = {name for name in there() if name.startswith(f"dt{dead.pid:x}-")}
    assert len(left) == 2, "a bridge, and a host that is a namespace and a link of one name"
    assert left <= set(remove_abandoned_networks())
    assert not left & there()
    dead.wait(patient(30))
    assert any(name.startswith(network.name) for name in there())


def test_networks_that_are_started_at_once_have_different_addresses() -> None:
    """Two that share one get each other's answers: a host cannot be reached though nothing is cut."""
    networks = [Namespaces() for _ in range(6)]
    try:
        with ThreadPoolExecutor(len(networks)) as threads:
            list(threads.map(Namespaces.start, networks))
        assert len({one.gateway for one in networks}) == len(networks)
    finally:
        for one in networks:
            one.stop()
