"""What all commands share: how they reach AWS, and how they say what went wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import click

from controller.errors import ControllerError, RetryLater
from controller.ports import Ports
from controller.registry import Registry
from controller.settings import Settings


@contextmanager
def one_clear_line() -> Iterator[None]:
    """Errors that a person can do something about are one line on stderr and exit code 1."""
    try:
        yield
    except RetryLater as error:
        raise click.ClickException(f"AWS cannot be reached or is busy: {_line(error)}") from error
    except ControllerError as error:
        raise click.ClickException(_line(error)) from error
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None


def connect() -> tuple[Ports, Registry, str]:
    """Ports on AWS, the registry of clusters, and the suffix of the elastic tag. Calls nothing yet."""
    from controller.wiring import aws_ports

    settings = Settings.of(os.environ)
    ports = aws_ports(settings.table, attempts=2)
    return ports, Registry(ports.parameters, ports.clock), settings.elastic_suffix


def moment(seconds: float | None) -> str:
    return "-" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
