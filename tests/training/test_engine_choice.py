"""Which engine a job uses: who says so, and what is said where it cannot be had."""

from __future__ import annotations

import socket

import pytest
from dyntrain import missing
from dyntrain.training.engine import engine_name, make_engine
from dyntrain.training.engine.interfaces import interface_of
from dyntrain.training.launch import plan
from dyntrain.training.protocol.engines import VARIABLE

LOCAL = ["-n", "1", "--launcher", "local", "--engine", "horovod", "python", "train.py"]


def test_the_script_decides_then_the_launch_then_it_is_ps_lite() -> None:
    assert engine_name("pslite", {VARIABLE: "horovod"}) == "pslite"
    assert engine_name(None, {VARIABLE: "horovod"}) == "horovod"
    assert engine_name(None, {}) == "pslite"
    with pytest.raises(ValueError, match="engine 'nccl': choose pslite or horovod"):
        engine_name("nccl", {})


def test_where_horovod_is_not_installed_it_is_said_how_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing, "find_spec", lambda name: None if name == "horovod" else name)
    with pytest.raises(ImportError, match=r"dyntrain\[horovod\].*make horovod"):
        make_engine("horovod", "dist_sync", "127.0.0.1")
    with pytest.raises(plan.LaunchError, match=r"--engine horovod: .*make horovod"):
        plan.parse(LOCAL)


def test_the_launch_tells_the_workers_and_a_cluster_takes_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing, "find_spec", lambda name: name)
    assert plan.parse(LOCAL).worker_environment == {VARIABLE: "horovod"}
    assert VARIABLE not in plan.parse(LOCAL).server_environment
    assert plan.parse_for_cluster(["--engine", "horovod", "python", "train.py"]).environment == {VARIABLE: "horovod"}
    with pytest.raises(SystemExit):
        plan.parse(["-n", "1", "--engine", "nccl", "python", "train.py"])


def test_the_interface_of_an_address_is_found_by_the_kernels_word() -> None:
    """Gloo is told an interface, and workers are known by addresses."""
    assert interface_of("127.0.0.77") == "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with pytest.raises(OSError, match=r"no network interface of this host has the address 192\.0\.2\.1"):
            interface_of("192.0.2.1")
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing: the kernel names the address that it would send from
        except OSError:
            return  # this host has no way out, and no address besides loopback
        address = str(probe.getsockname()[0])
    assert interface_of(address) in {name for _, name in socket.if_nameindex()} - {"lo"}


def test_what_is_silenced_at_a_launch_is_known_to_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    options = ["--ignore", "DT604,DT302", "--checks", "strict", "python", "train.py"]
    environment = {"DYNTRAIN_IGNORE": "DT302,DT604", "DYNTRAIN_CHECKS": "strict"}
    assert plan.parse_for_cluster(options).environment == environment
    assert plan.parse(["-n", "1", "--launcher", "local", *options]).worker_environment == environment
    with pytest.raises(plan.LaunchError, match=r"--ignore DT999: .*no rule has the code"):
        plan.parse_for_cluster(["--ignore", "DT999", "python", "train.py"])
