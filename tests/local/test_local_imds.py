"""The metadata service of an embedded machine, when the machine goes away under it."""

from __future__ import annotations

import http.client
import socket
import struct
import threading

import pytest
from dyntrain.controller.local.machines.imds import TOKEN_HEADER, MetadataService
from dyntrain.controller.local.pace import patient
from waiting import wait_for


def test_a_node_that_is_killed_in_mid_request_prints_no_traceback_on_the_persons_terminal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    service = MetadataService(dict)
    host, port = service.start().removeprefix("http://").split(":")
    try:
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET /latest/meta-data/ HTT")
            wait_for(lambda: serving() > 0)
            # a reset, as the kernel sends for a killed process
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_for(lambda: serving() == 0)
    finally:
        service.stop()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("required", "status"), [(True, 401), (False, 200)])
def test_version_1_is_answered_where_the_instance_makes_tokens_optional_and_a_wrong_token_never(
    required: bool, status: int
) -> None:
    tree = {"latest": {"meta-data": {"instance-id": "i-1"}}}
    service = MetadataService(lambda: tree, tokens_required=lambda: required)
    host = service.start().removeprefix("http://")
    try:
        answers = []
        for path, headers in (("instance-id", {}), ("instance-id", {TOKEN_HEADER: "made up"}), ("tags/x", {})):
            client = http.client.HTTPConnection(host, timeout=patient(10))
            client.request("GET", f"/latest/meta-data/{path}", headers=headers)
            answer = client.getresponse()
            answers.append((answer.status, answer.read().decode()))
            client.close()
    finally:
        service.stop()
    assert [answers[0][0], answers[1][0]] == [status, 401]
    assert answers[2][1].startswith("<?xml") is not required, "what a script that waits for a tag looks for"


def serving() -> int:
    """Requests that are being answered, as socketserver names their threads."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())
