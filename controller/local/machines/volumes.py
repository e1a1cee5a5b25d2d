"""Folders in place of EFS file systems: each file system has its own, as in AWS, so that a cluster finds only its own
code and data there.
"""

from __future__ import annotations

import re
from pathlib import Path

SHARED = "shared"
VOLUME = "{volume}"  # placeholder in a machine's command for the folder of its volume
MOUNTED = re.compile(r"^FILE_SYSTEM=(fs-[0-9a-z]+)", re.MULTILINE)  # as the cluster's template has it in the user data


class Volumes:
    """The volumes. The first one mounted is `shared`, the name for people; machines that name no file system get it as
    well.
    """

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._folders: dict[str, Path] = {}

    def of(self, user_data: str) -> Path:
        """The folder of the machine that boots with that user data. Raises OSError where it cannot be created."""
        named = MOUNTED.search(user_data)
        if named is None:
            return self._state_dir / SHARED
        name = f"{SHARED}-{named[1]}" if self._folders else SHARED
        folder = self._folders.setdefault(named[1], self._state_dir / name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder
