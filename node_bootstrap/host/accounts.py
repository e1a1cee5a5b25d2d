"""Looks up the user that runs the training script and all other processes of the job."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from dyntrain.node_bootstrap.host.errors import InvalidConfiguration


@dataclass(frozen=True)
class UserAccount:
    """A user account of the host's operating system."""

    name: str  # name of the user
    uid: int  # id of the user
    gid: int  # id of the user's group


def look_up_account(name: str) -> UserAccount:
    """Return the ids of the user with the name `name` and of the user's group.

    Raises InvalidConfiguration if the user does not exist, or if this process may not run programs as the user.
    """
    try:
        passwd_entry = pwd.getpwnam(name)
    except KeyError as error:
        raise InvalidConfiguration(
            f"there is no user {name} to run the training script: create it, or start without --user"
        ) from error
    if os.geteuid() not in (0, passwd_entry.pw_uid):
        raise InvalidConfiguration(f"only root can run the training script as {name}: start as root or without --user")
    return UserAccount(name, passwd_entry.pw_uid, passwd_entry.pw_gid)
