"""The user that runs the training script and all other processes of the job."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from dyntrain.node_bootstrap.host.errors import InvalidConfiguration


@dataclass(frozen=True)
class Account:
    name: str
    uid: int
    gid: int


def account(name: str) -> Account:
    """Look up the user. Raises InvalidConfiguration if the user is missing or not allowed to this process."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError as error:
        raise InvalidConfiguration(
            f"there is no user {name} to run the training script: create it, or start without --user"
        ) from error
    if os.geteuid() not in (0, entry.pw_uid):
        raise InvalidConfiguration(f"only root can run the training script as {name}: start as root or without --user")
    return Account(name, entry.pw_uid, entry.pw_gid)
