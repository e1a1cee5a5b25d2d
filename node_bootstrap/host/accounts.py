"""The user as whom a node runs what is not its own: the training script and all that could be made to run it."""

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
    """Raises InvalidConfiguration where there is no such user, or this process cannot become another one."""
    try:
        found = pwd.getpwnam(name)
    except KeyError as error:
        raise InvalidConfiguration(
            f"there is no user {name} to run the training script: make it, or start without --user"
        ) from error
    if os.geteuid() not in (0, found.pw_uid):
        raise InvalidConfiguration(f"only root can run the training script as {name}: start as root or without --user")
    return Account(name, found.pw_uid, found.pw_gid)
