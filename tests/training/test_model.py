"""The model of steps, changes and crashes: what it would mislead somebody about who sets the servers by it."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import mxnet as mx
import pytest
from click.testing import CliRunner
from dyntrain.controller.cli.main import main
from dyntrain.training.model.dealing import ServerLoad, deal
from dyntrain.training.model.networks import NETWORKS
from dyntrain.training.model.prediction import (
    BESIDE_FORMATION,
    CHUNK,
    Machines,
    pause_seconds,
    predict_exchange,
    predict_release,
    state_seconds,
    step_seconds,
)
from dyntrain.training.model.table import ALL, Placement, bottleneck_from, load_of
from dyntrain.training.worker.membership import handover
from dyntrain.training.worker.transfer import feed
from hypothesis import given
from hypothesis import strategies as st
from mxnet.gluon.model_zoo import vision

ROOT = Path(__file__).parents[2]
GIGABIT = 1e9 / 8
MACHINES = Machines(25 * GIGABIT, 5 * GIGABIT, 1e9, 0.005, 0.3)
speeds = st.floats(1e6, 1e10)
machines = st.builds(Machines, speeds, speeds, speeds, st.floats(0, 0.1), st.floats(0, 1))
networks = st.sampled_from(sorted(NETWORKS))


def test_the_gradients_are_those_of_gluons_network() -> None:
    net = vision.resnet50_v1(classes=1000)
    net.initialize()
    net(mx.nd.zeros((1, 3, 32, 32)))
    assert [shape for _, shape, _ in NETWORKS["ResNet-50"]()] == [
        p.shape for p in net.collect_params().values() if p.grad_req != "null"
    ]
    sizes = {name: sum(math.prod(shape) for _, shape, _ in keys()) for name, keys in NETWORKS.items()}
    assert sizes == {"ResNet-50": 25_575_912, "BERT-large": 335_141_888}


def test_sizes_that_the_worker_goes_by_are_the_workers() -> None:
    assert (CHUNK, BESIDE_FORMATION) == (feed.CHUNK_BYTES, handover.BESIDE_FORMATION)


def test_a_key_lives_whole_on_the_server_that_has_least_when_its_turn_comes() -> None:
    """By hand: 2.5 million elements are three keys, the fourth is another gradient, and the smallest."""
    dealt = deal([("a", (2_500_000,), "float32"), ("b", (10,), "float64")], 3)
    assert dealt == ServerLoad((4_000_000, 4_000_000, 2_000_080), 4_000_000)


def test_an_exchange_by_hand() -> None:
    """Four workers, servers on the first two. Each server's node takes in 3 x its bytes, and its worker the other's."""
    dealt, one_link = ServerLoad((60, 40), 10), Machines(1.0, 1e9, 1e9, 0.0, 0.0)
    assert predict_exchange(dealt, 4, one_link).seconds == 3 * 60 + 40 + 3 * 10
    assert predict_exchange(ServerLoad((100,), 10), 2, one_link).seconds == 100 + 10
    assert predict_exchange(ServerLoad((100,), 10), 1, one_link).seconds < 1e-6, "the loopback is not the link"
    assert predict_exchange(dealt, 4, replace(one_link, connection=0.1)).by == "connection"
    assert predict_exchange(dealt, 4, replace(one_link, serving=0.1)).by == "server"


def test_a_release_by_hand() -> None:
    """One of four workers is lost, and three push a share of the zeros each: what the fuller server's node sends takes
    longest. A single survivor pushes all, and has every sum twice.
    """
    dealt, one_link = ServerLoad((60, 40), 10), Machines(1.0, 1e9, 1e9, 0.0, 0.0)
    assert math.isclose(predict_release(dealt, 4, one_link).seconds, 2 * 60 + 2 / 3 * 60 + 2 * 10)
    assert predict_release(ServerLoad((100,), 10), 2, one_link).seconds == 2 * 100 + 2 * 10
    shared = predict_release(dealt, 4, replace(one_link, connection=0.1))
    assert (shared.by, round(shared.seconds, 6)) == ("connection", (60 + 60 / 3) / 0.1)


@given(networks, st.integers(2, 64), st.integers(1, 64), machines, st.floats(1, 100))
def test_faster_machines_are_never_slower_and_more_workers_never_faster(
    network: str, workers: int, servers: int, machines: Machines, factor: float
) -> None:
    placement = load_of(network, min(servers, workers))
    for faster in (
        replace(machines, link=machines.link * factor),
        replace(machines, connection=machines.connection * factor),
        replace(machines, serving=machines.serving * factor),
    ):
        assert (
            predict_exchange(placement, workers, faster).seconds
            <= predict_exchange(placement, workers, machines).seconds
        )
        assert (
            predict_release(placement, workers, faster).seconds <= predict_release(placement, workers, machines).seconds
        )
        assert pause_seconds(placement, 10**9, 1, workers, faster) <= pause_seconds(
            placement, 10**9, 1, workers, machines
        )
    if servers < workers:
        assert (
            predict_exchange(placement, workers, machines).seconds
            <= predict_exchange(placement, workers + 1, machines).seconds
        )
    assert predict_release(placement, workers, machines).seconds <= predict_release(
        placement, 2, machines
    ).seconds * max(1, workers - 1), "survivors divide what is owed"


@given(networks, st.integers(8, 64), machines)
def test_servers_on_all_of_many_members_are_never_slower_than_on_one_base_node(
    network: str, workers: int, machines: Machines
) -> None:
    everywhere = predict_exchange(load_of(network, workers), workers, machines).seconds
    assert everywhere <= predict_exchange(load_of(network, 1), workers, machines).seconds


@given(networks, machines, st.floats(0.01, 100), st.floats(1, 10))
def test_whoever_computes_longer_meets_the_bottleneck_with_more_workers(
    network: str, machines: Machines, compute: float, factor: float
) -> None:
    for placement in (Placement(1), Placement(2), ALL):
        few, many = (bottleneck_from(network, placement, machines, each) for each in (compute, compute * factor))
        assert (few or 65) <= (many or 65)


def test_what_the_backward_pass_hides_costs_nothing() -> None:
    assert step_seconds(1.0, 0.5, overlap=0.6) == 1.0
    assert step_seconds(1.0, 0.5, overlap=0.0) == 1.5


def test_a_chains_last_member_has_the_state_a_chunk_after_the_one_before() -> None:
    slow = replace(MACHINES, link=float(CHUNK), connection=float(CHUNK))
    assert state_seconds(100 * CHUNK, 1, 8, slow) == 107
    assert state_seconds(100 * CHUNK, 4, 8, slow) == 101
    assert state_seconds(100 * CHUNK, 4, 0, slow) == 0


def test_a_large_state_is_fetched_before_ps_lite_and_a_small_one_beside_it() -> None:
    placement, size = load_of("ResNet-50", 1), BESIDE_FORMATION
    small, large = (pause_seconds(placement, each, 3, 4, MACHINES) for each in (size, size + 1))
    assert large > small + 0.1


def test_the_table_in_the_document_is_what_the_command_prints() -> None:
    """Anew: the table of `dyntrain model` goes between the lines ``` of training/SCALING.md."""
    printed = CliRunner().invoke(main, ["model"]).output
    blocks = re.findall(r"^```\n(.*?)^```$", (ROOT / "training" / "SCALING.md").read_text(), re.DOTALL | re.MULTILINE)
    assert [line.rstrip() for line in printed.splitlines()] in [
        [line.rstrip() for line in block.splitlines()] for block in blocks
    ]


@pytest.mark.parametrize("options", [["--link", "0"], ["--workers", "1"], ["--overlap", "2"]])
def test_what_makes_no_sense_is_refused(options: list[str]) -> None:
    assert CliRunner().invoke(main, ["model", *options]).exit_code == 2
