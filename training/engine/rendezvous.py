"""Where the workers of a generation find each other: Horovod's own HTTP store, on one base node while they form."""

from __future__ import annotations

from collections.abc import Mapping

ADDRESS, PORT = "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"


def serve_rendezvous(environment: Mapping[str, str]) -> None:
    """Until killed. Like ps-lite's scheduler it asks nobody who they are: the security group decides who reaches it.
    What it keeps is text that Gloo parses. Raises OSError when the port is taken.
    """
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    RendezvousHTTPServer((environment[ADDRESS], int(environment[PORT])), RendezvousHandler, False).serve_forever()
