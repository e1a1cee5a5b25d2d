"""The command `dyntrain dashboard`, which serves the dashboard's web page until Ctrl-C."""

from __future__ import annotations

import os
import secrets
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from dyntrain.controller.cli.shell.connection import connect_to_stage, stage_of_command
from dyntrain.controller.cli.shell.errors import errors_on_one_line
from dyntrain.controller.cli.shell.place import say_where
from dyntrain.controller.cli.shell.waiting import waiting
from dyntrain.controller.contract.errors import Misconfigured
from dyntrain.missing import require

if TYPE_CHECKING:
    from dyntrain.controller.cli.answers.log_sources import Source

HOST_ADDRESS = "127.0.0.1"
DEFAULT_PORT = 8250
TOKEN_BYTES = 24


@click.command(
    epilog="Examples:\n\n\b\n  dyntrain dashboard\n  dyntrain dashboard --port 0 --allow-changes\n"
    "  dyntrain dashboard --directory /tmp/cloud     logs from an embedded cloud's files"
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port on 127.0.0.1; 0 picks a free one.",
)
@click.option(
    "--every",
    "pause_seconds",
    type=click.FloatRange(0.2),
    default=2.0,
    show_default=True,
    help="Seconds between two readings of a cluster while a page shows it.",
)
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the token of the address in this file, so that an open page works with the next run of the command.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    envvar="DYNTRAIN_LOCAL_DIRECTORY",
    help="Show logs from the files of an embedded cloud (`local up --directory`) in place of CloudWatch.",
)
@click.option(
    "--allow-changes",
    is_flag=True,
    help="Let the page scale clusters, add, remove and replace nodes; each change is described first.",
)
def dashboard(  # `dyntrain dashboard`
    port: int, pause_seconds: float, token_file: Path | None, directory: Path | None, allow_changes: bool
) -> None:
    """Show the clusters as a web page, on this machine only and to anybody who has the address.

    The page reads with your own AWS credentials, and changes nothing unless you allow it.
    """
    with errors_on_one_line():
        listening_socket = listen(port)
        token = kept_token(token_file) if token_file is not None else secrets.token_urlsafe(TOKEN_BYTES)
        require(("starlette", "uvicorn", "sse_starlette"))
        serve_dashboard(listening_socket, token, pause_seconds, directory, allow_changes=allow_changes)


def listen(port: int) -> socket.socket:
    """Bind the port early, so that a port in use is reported before slow work begins. Raises Misconfigured if the port
    cannot be bound.
    """
    listening_socket = socket.socket()
    listening_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening_socket.bind((HOST_ADDRESS, port))
    except OSError as error:
        listening_socket.close()
        raise Misconfigured(
            f"port {port} of {HOST_ADDRESS} cannot be opened: {error.strerror}; give another port"
        ) from error
    return listening_socket


def kept_token(path: Path) -> str:
    """Read the dashboard's token from the file. A missing file is created with a new token, and only the file's owner
    can read the file. Raises Misconfigured.
    """
    try:
        with (
            suppress(FileExistsError),
            os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as token_file,
        ):
            token_file.write(secrets.token_urlsafe(TOKEN_BYTES))
        if path.stat().st_mode & 0o077:
            raise Misconfigured(
                f"the token file {path} can be read by other users: chmod 600 it, or remove it for a new token"
            )
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"the token cannot be kept in {path}: {error}") from error
    if len(token) < TOKEN_BYTES or not token.replace("-", "").replace("_", "").isalnum():
        raise Misconfigured(f"the file {path} contains no valid token: remove the file, and a new token is made")
    return token


def serve_dashboard(
    listening_socket: socket.socket,
    token: str,
    pause_seconds: float,
    directory: Path | None,
    *,
    allow_changes: bool = False,
) -> None:
    """Serve the dashboard's page until the process receives SIGINT or SIGTERM."""
    from dyntrain.controller.cli.answers.pool import inputs_from_aws
    from dyntrain.controller.dashboard.readings import Readings, log_of
    from dyntrain.controller.dashboard.server import Page, Server

    with waiting("looking for the controller's stage"):
        stage = stage_of_command()
        connection = connect_to_stage(stage)
    if allow_changes:
        say_where("what the page may change")

    def log_source(cluster: str, instance: str, kind: str) -> Source:
        return log_of(cluster, instance, kind, time.time(), directory)

    readings = Readings(connection)
    page = Page(readings, lambda: inputs_from_aws(stage), log_source, pause_seconds, allow_changes=allow_changes)
    listening_socket.listen()
    allowed_actions = "read and change" if allow_changes else "read"
    page_address = f"http://{HOST_ADDRESS}:{listening_socket.getsockname()[1]}/{token}/"
    click.echo(f"The dashboard is at {page_address} until Ctrl-C. Whoever has this address can {allowed_actions} it.")
    Server(page, token, listening_socket).serve_page()
