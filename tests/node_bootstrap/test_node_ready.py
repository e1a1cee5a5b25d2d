"""The signal that ends the stack's wait: whoever made the stack needs to know which machine to log in to, and may bring
prepare-data then, not hours later.
"""

from __future__ import annotations

import asyncio
import json
import re
from http.server import BaseHTTPRequestHandler
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from dyntrain.node_bootstrap.__main__ import SIGNAL_READY_SECONDS
from dyntrain.node_bootstrap.reports.ready import signal_ready
from node_fakes import BASE_TAGS, INSTANCE, MASTER_TAGS, World, serving, world

taken: list[tuple[str | None, dict[str, Any]]] = []


class WaitHandle(BaseHTTPRequestHandler):
    """Refuses the first signal, as S3 does now and then."""

    refusals = 1
    answer = 503

    def log_message(self, *args: Any) -> None:
        pass

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if WaitHandle.refusals:
            WaitHandle.refusals -= 1
            self.send_response(WaitHandle.answer)
        else:
            taken.append((self.headers.get("Content-Type"), body))
            self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


def signal(here: World, url: str) -> int:
    return asyncio.run(signal_ready(url, 20, here.metadata.url, pause=0.05))


def test_the_master_signals_with_its_address_though_nobody_trains_yet(tmp_path: Path) -> None:
    """An empty volume has no coordinator: it waits for the script that people bring once the stack is there."""
    taken.clear()
    WaitHandle.answer, WaitHandle.refusals = 503, 1
    with world(tmp_path, **MASTER_TAGS) as here, serving(WaitHandle) as url:
        here.metadata.values["meta-data/public-ipv4"] = "203.0.113.7"
        assert signal(here, url) == 0
    assert [(kind, body["Status"], body["UniqueId"], body["Data"]) for kind, body in taken] == [
        ("", "SUCCESS", INSTANCE, "203.0.113.7")
    ]


@pytest.mark.parametrize(("answer", "code", "requests"), [(403, 78, 1), (429, 0, 2)])
def test_a_signal_that_is_refused_for_good_is_not_repeated_for_an_hour(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    answer: int,
    code: int,
    requests: int,
) -> None:
    """A master that replaces another has the address of a stack that was made long ago."""
    taken.clear()
    WaitHandle.answer, WaitHandle.refusals = answer, 1
    with world(tmp_path, **MASTER_TAGS) as here, serving(WaitHandle) as url:
        assert signal(here, url) == code
    assert len(taken) == requests - 1
    assert (f"CloudFormation refuses the signal ({answer} " in caplog.text) == (code == 78)


def test_the_signal_is_tried_for_as_long_as_the_stack_waits() -> None:
    """Shorter, and a stack fails whose master was ready late; longer, and it speaks to nobody."""
    template = (files("dyntrain.node_bootstrap") / "cluster.template.yaml").read_text()
    assert re.findall(r'Handle: !Ref ReadyHandle, .*Timeout: "(\d+)"', template) == [f"{SIGNAL_READY_SECONDS:.0f}"]


def test_other_nodes_leave_the_signal_to_the_master(tmp_path: Path) -> None:
    taken.clear()
    with world(tmp_path, **BASE_TAGS) as here, serving(WaitHandle) as url:
        assert signal(here, url) == 0
    assert taken == []
