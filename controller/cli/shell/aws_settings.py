"""AWS settings while a command runs: its options override the environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager

PROFILES = ("AWS_DEFAULT_PROFILE", "AWS_PROFILE")


def aws_settings(environment: Mapping[str, str], region: str | None, profile: str | None) -> dict[str, str | None]:
    """Variables for botocore, which knows neither our options nor AWS_REGION; None: to be unset.

    As with `aws`: an option counts more than a variable, AWS_REGION more than AWS_DEFAULT_REGION, and a named profile
    more than keys in the environment. Of the variables that name a profile botocore takes AWS_DEFAULT_PROFILE before
    AWS_PROFILE, and an empty one as a profile's name; an option has to override both.
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
    """Change the environment while the command runs, also for processes that it starts."""
    before = {name: environment.get(name) for name in settings}
    _set(environment, settings)
    try:
        yield
    finally:
        _set(environment, before)


def _set(environment: MutableMapping[str, str], settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
