"""Environment variables of AWS while a command runs: the command's options override the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager

PROFILES = ("AWS_DEFAULT_PROFILE", "AWS_PROFILE")


def aws_settings(environment: Mapping[str, str], region: str | None, profile: str | None) -> dict[str, str | None]:
    """The variables that botocore reads, with their values; None for a variable to unset.

    As with `aws`, an option overrides a variable, AWS_REGION overrides AWS_DEFAULT_REGION, and a named profile
    overrides access keys. botocore ignores AWS_REGION, prefers AWS_DEFAULT_PROFILE to AWS_PROFILE, and takes an empty
    variable as a profile's name; so an option sets all of these variables.
    """
    settings: dict[str, str | None] = {name: None for name in PROFILES if environment.get(name) == ""}
    if chosen := region or environment.get("AWS_REGION"):
        settings["AWS_DEFAULT_REGION"] = settings["AWS_REGION"] = chosen
    if profile is not None:
        settings |= dict.fromkeys(PROFILES, profile)
        settings |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"))
    return settings


@contextmanager
def changed(environment: MutableMapping[str, str], settings: Mapping[str, str | None]) -> Iterator[None]:
    """Change the environment of the command, and of the processes that the command starts, while it runs."""
    old_values = {name: environment.get(name) for name in settings}
    _set_variables(environment, settings)
    try:
        yield
    finally:
        _set_variables(environment, old_values)


def _set_variables(environment: MutableMapping[str, str], settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
