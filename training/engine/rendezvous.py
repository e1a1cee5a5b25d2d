"""The rendezvous of a generation's workers: Horovod's own HTTP store, on one base node during formation."""

from __future__ import annotations

from collections.abc import Mapping

ADDRESS, PORT = "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"


def serve_rendezvous(environment: Mapping[str, str]) -> None:
    """Serve until killed. Raises OSError if the port is taken.

    Like ps-lite's scheduler, the rendezvous has no authentication: the security group decides which machines can reach
    it. The rendezvous stores text that Gloo parses.
    """
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    RendezvousHTTPServer((environment[ADDRESS], int(environment[PORT])), RendezvousHandler, False).serve_forever()
