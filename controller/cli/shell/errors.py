"""Print each error of a command as one line."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

import click
from dyntrain.controller.cli.text.words import printable
from dyntrain.controller.contract.errors import ControllerError, RetryLater


@contextmanager
def errors_on_one_line() -> Iterator[None]:
    """A context in which an error that the user can correct is printed on stderr as one line. After printing the
    error, the command exits with code 1.
    """
    try:
        yield
    except RetryLater as error:
        message = _region_problem() or f"AWS cannot be reached or is busy: {on_one_line(error)}"
        raise click.ClickException(message) from error
    except ControllerError as error:
        raise click.ClickException(on_one_line(error)) from error
    except KeyboardInterrupt:
        raise click.exceptions.Exit(130) from None


def on_one_line(error: Exception) -> str:
    return printable(" ".join(str(error).split()))


def _region_problem() -> str:
    """The message that the configured AWS region does not exist, or "" for an existing region. If AWS_ENDPOINT_URL is
    set, the region is not checked.
    """
    if os.environ.get("AWS_ENDPOINT_URL"):
        return ""
    from botocore.session import Session

    botocore_session = Session()
    region = str(botocore_session.get_config_variable("region") or "")
    region_names = [
        region_name
        for partition in botocore_session.get_available_partitions()
        for region_name in botocore_session.get_available_regions("ec2", partition_name=partition)
    ]
    return unknown_region_message(region, region_names)


def unknown_region_message(region: str, known: Collection[str]) -> str:
    """The message that the AWS region is unknown, or "" for a region in `known`."""
    if region in known:
        return ""
    similar_regions = get_close_matches(region, known, n=1)
    suggestion = f"; is {similar_regions[0]} meant?" if similar_regions else ""
    return f"there is no AWS region {region!r}, or it is newer than this installation of botocore{suggestion}"
