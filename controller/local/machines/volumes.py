"""Folders in place of EFS file systems. Each file system has a folder of its own, so that a cluster finds only its own
code and data.
"""

from __future__ import annotations

import re
from pathlib import Path

SHARED = "shared"
VOLUME = "{volume}"  # placeholder in a machine's command for the folder of its volume
MOUNTED = re.compile(r"^FILE_SYSTEM=(fs-[0-9a-z]+)", re.MULTILINE)  # as in the user data of the cluster's template


class Volumes:
    """The folders of all file systems. The first mounted file system gets the folder `shared`, which users find easily.
    Machines whose user data names no file system use this folder, too.
    """

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._folders: dict[str, Path] = {}

    def folder_for(self, user_data: str) -> Path:
        """The folder for a machine with that user data. Raises OSError if the folder cannot be created."""
        file_system = MOUNTED.search(user_data)
        if file_system is None:
            return self._state_dir / SHARED
        name = f"{SHARED}-{file_system[1]}" if self._folders else SHARED
        folder = self._folders.setdefault(file_system[1], self._state_dir / name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder
