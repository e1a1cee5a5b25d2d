"""Folders that stand for EFS file systems. Each file system has a folder of its own, so that a cluster finds only its
own code and data.
"""

from __future__ import annotations

import re
from pathlib import Path

SHARED_FOLDER = "shared"
VOLUME_PLACEHOLDER = "{volume}"  # placeholder in a machine's command for the folder of its volume
MOUNTED_FILE_SYSTEM = re.compile(r"^FILE_SYSTEM=(fs-[0-9a-z]+)", re.M)  # as in the user data of the cluster's template


class Volumes:
    """The folders of all emulated EFS file systems. The first mounted file system gets the folder `shared`, which users
    find easily. A machine whose user data names no file system uses this folder, too.
    """

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._folders: dict[str, Path] = {}

    def create_folder_for(self, user_data: str) -> Path:
        """Create and return the folder of the file system that the user data mounts. Raises OSError if the folder
        cannot be created.
        """
        file_system_match = MOUNTED_FILE_SYSTEM.search(user_data)
        if file_system_match is None:
            return self._state_dir / SHARED_FOLDER
        folder_name = f"{SHARED_FOLDER}-{file_system_match[1]}" if self._folders else SHARED_FOLDER
        folder = self._folders.setdefault(file_system_match[1], self._state_dir / folder_name)
        folder.mkdir(parents=True, exist_ok=True)
        return folder
