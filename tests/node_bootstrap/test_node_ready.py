"""The signal that ends the stack's wait: a stack that is done before the coordinator listens, or never, misleads whoever made it."""

from __future__ import annotations

import asyncio
import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from node_coordinator import dead_endpoint
from node_fakes import BASE_TAGS, INSTANCE, MASTER_TAGS, World, serving, world

from node_bootstrap.ready import signal_ready

taken: list[tuple[str | None, dict[str, Any]]] = []


class WaitHandle(BaseHTTPRequestHandler):
    """Refuses the first signal, as S3 does now and then."""

    refusals = 1

    def log_message(self, *args: Any) -> None:
        pass

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if WaitHandle.refusals:
            WaitHandle.refusals -= 1
            self.send_response(503)
        else:
            taken.append((self.headers.get("Content-Type"), body))
            self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


def signal(here: World, url: str, seconds: float) -> int:
    return asyncio.run(signal_ready(url, seconds, here.metadata.url, lambda region: here.parameters, pause=0.05))


def test_the_master_signals_once_its_own_coordinator_listens(tmp_path: Path) -> None:
    taken.clear()
    WaitHandle.refusals = 1
    with world(tmp_path, **MASTER_TAGS) as here, serving(WaitHandle) as url:
        here.publish(dead_endpoint().model_copy(update={"instance_id": "i-0fffffffffffffff1"}))
        assert signal(here, url, 0.5) == 75
        assert taken == [], "what an earlier stack of that name left is no coordinator of this one"
        here.publish(dead_endpoint())
        assert signal(here, url, 20) == 0
    assert [(kind, body["Status"], body["UniqueId"], body["Data"]) for kind, body in taken] == [("", "SUCCESS", INSTANCE, "job-0")]


def test_other_nodes_leave_the_signal_to_the_master(tmp_path: Path) -> None:
    taken.clear()
    with world(tmp_path, **BASE_TAGS) as here, serving(WaitHandle) as url:
        here.publish(dead_endpoint())
        assert signal(here, url, 20) == 0
    assert taken == []
