"""Serves Horovod's HTTP store, through which the workers of a generation find each other while the generation forms."""

from __future__ import annotations

from collections.abc import Mapping

ADDRESS, PORT = "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT"  # environment variables


def serve_rendezvous(environment: Mapping[str, str]) -> None:
    """Serve Horovod's HTTP store until the process is killed. Raises OSError if the port is in use.

    Like ps-lite's scheduler, this server has no authentication, and only the security group limits which machines can
    connect to the server. The server stores text that Gloo parses.
    """
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    RendezvousHTTPServer((environment[ADDRESS], int(environment[PORT])), RendezvousHandler, False).serve_forever()
