"""Set the environment variables of AWS while a command runs. The command's options override variables that are already
set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager

PROFILE_VARIABLES = ("AWS_DEFAULT_PROFILE", "AWS_PROFILE")


def aws_settings(environment: Mapping[str, str], region: str | None, profile: str | None) -> dict[str, str | None]:
    """The environment variables that botocore reads, with their values for the command. A variable with the value None
    is to be unset.

    As in the `aws` program, the command's options override environment variables, AWS_REGION overrides
    AWS_DEFAULT_REGION, and a named profile overrides access keys. The library botocore ignores AWS_REGION, prefers
    AWS_DEFAULT_PROFILE to AWS_PROFILE, and takes an empty variable as a profile's name. Therefore a chosen region is
    set in AWS_REGION and AWS_DEFAULT_REGION, and a chosen profile in AWS_PROFILE and AWS_DEFAULT_PROFILE.
    """
    aws_variables: dict[str, str | None] = {
        variable: None for variable in PROFILE_VARIABLES if environment.get(variable) == ""
    }
    if chosen_region := region or environment.get("AWS_REGION"):
        aws_variables["AWS_DEFAULT_REGION"] = aws_variables["AWS_REGION"] = chosen_region
    if profile is not None:
        aws_variables |= dict.fromkeys(PROFILE_VARIABLES, profile)
        aws_variables |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"))
    return aws_variables


@contextmanager
def changed_environment(environment: MutableMapping[str, str], settings: Mapping[str, str | None]) -> Iterator[None]:
    """A context in which `settings` change the environment variables of this process and of its child processes."""
    old_values = {variable: environment.get(variable) for variable in settings}
    _set_variables(environment, settings)
    try:
        yield
    finally:
        _set_variables(environment, old_values)


def _set_variables(environment: MutableMapping[str, str], settings: Mapping[str, str | None]) -> None:
    for variable, value in settings.items():
        if value is None:
            environment.pop(variable, None)
        else:
            environment[variable] = value
