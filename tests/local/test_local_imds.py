"""The metadata service of an embedded machine, when the machine goes away under it."""

from __future__ import annotations

import socket
import struct
import threading

import pytest
from local_toycloud import wait_for

from controller.local.imds import MetadataService


def test_a_node_that_is_killed_in_mid_request_prints_no_traceback_on_the_persons_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    service = MetadataService(dict)
    host, port = service.start().removeprefix("http://").split(":")
    try:
        with socket.create_connection((host, int(port))) as client:
            client.sendall(b"GET /latest/meta-data/ HTT")
            wait_for(lambda: serving() > 0)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset, as the kernel sends for a killed process
        wait_for(lambda: serving() == 0)
    finally:
        service.stop()
    assert capfd.readouterr().err == ""


def serving() -> int:
    """Requests that are being answered, as socketserver names their threads."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())
