"""Check a user's own training command before the embedded cloud starts, so that a typing mistake is
reported at once.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from dyntrain.controller.local.errors import LocalCloudError

MOUNT_POINT, PYTHON = "/myEFSvolume", "/opt/dyntrain/bin/python"  # paths on a bare machine, from the cluster's template
PYTHON_NAMES = re.compile(r"python(\d(\.\d+)?)?")
SHELL_NAMES = re.compile(r"(ba|da|z|k)?sh")
VALUE_OPTIONS = {PYTHON_NAMES: "XW", SHELL_NAMES: "oO"}  # short options whose value may be the next word
CODE_OPTIONS = {PYTHON_NAMES: "cm", SHELL_NAMES: "cs"}  # short options after which code or a module's name follows


class CommandNotFound(LocalCloudError):
    """Raised when the command's program, script or folder does not exist."""


def current_folder() -> Path:
    """The current folder. Raises CommandNotFound."""
    try:
        return Path.cwd()
    except OSError as error:
        raise CommandNotFound(
            "the current folder no longer exists; change to another folder, then try again"
        ) from error


def check_command(command: Sequence[str], folder: Path, path: str) -> None:
    """Check that the command's program and script exist. The program is searched in the folders that `path` lists, as
    in the variable PATH. Relative file names are relative to `folder`, where the command will run. Raises
    CommandNotFound, which names the missing file.
    """
    program, script = command[0], script_of(command)
    if not program:
        raise CommandNotFound("the command's first word is empty; it must name a program")
    if "/" not in program:
        if shutil.which(program, path=path) is None:
            raise CommandNotFound(f"there is no program {program} on PATH, so it cannot be run")
    elif not (folder / program).is_file():
        raise CommandNotFound(f"there is no program {program}{_folder_note(program, folder)}")
    elif shutil.which(str(folder / program)) is None:
        raise CommandNotFound(f"{program} cannot be run as a program: chmod +x {program}, or name its interpreter")
    if script is not None and not (folder / script).exists():
        raise CommandNotFound(f"there is no {script}{_folder_note(script, folder)}")


def bare_machine_command(command: Sequence[str], volume: Path | None) -> tuple[str, ...]:
    """The user's command in the form that bare machines can run. Bare machines run the command in the shared volume,
    with the machine's own Python. `volume` is the folder on this host that becomes the shared volume, or None if the
    user named no folder. Raises CommandNotFound if the script is not in the volume.
    """
    script = script_of(command)
    script_path = None if script is None else _path_on_volume(script, volume)
    if script is not None and (script_path is None or not script_path.exists()):
        volume_name = f"{volume}" if volume is not None else "DIRECTORY/shared"
        advice = "" if volume is not None else ", and give --directory DIRECTORY"
        raise CommandNotFound(
            f"bare machines see only the shared volume, and {script} is not in it: "
            f"put the script into {volume_name}{advice}"
        )
    return (PYTHON, *command[1:]) if command[0] in ("python", "python3") else tuple(command)


def script_of(command: Sequence[str]) -> str | None:
    """The script that the command passes to an interpreter (Python or a shell), or None if the command has no
    interpreter or no script.
    """
    program_name = PurePath(command[0]).name
    interpreter = next((interpreter for interpreter in VALUE_OPTIONS if interpreter.fullmatch(program_name)), None)
    if interpreter is None:
        return None
    remaining_words = iter(command[1:])
    for word in remaining_words:
        if word == "--":
            return next(remaining_words, None)
        if word == "-":
            return None  # code from standard input
        if not word.startswith(("-", "+")):
            return word
        if word.startswith("--"):
            if word == "--check-hash-based-pycs":
                next(remaining_words, None)
        elif _is_followed_by_code(word[1:], interpreter, remaining_words):
            return None
    return None


def _is_followed_by_code(option_letters: str, interpreter: re.Pattern[str], remaining_words: Iterator[str]) -> bool:
    for position, letter in enumerate(option_letters, 1):
        if letter in CODE_OPTIONS[interpreter]:
            return True
        if letter in VALUE_OPTIONS[interpreter]:
            if position == len(option_letters):
                next(remaining_words, None)
            return False
    return False


def _path_on_volume(script: str, volume: Path | None) -> Path | None:
    if volume is None:
        return None
    if not PurePath(script).is_absolute():
        return volume / script
    return volume / PurePath(script).relative_to(MOUNT_POINT) if PurePath(script).is_relative_to(MOUNT_POINT) else None


def _folder_note(name: str, folder: Path) -> str:
    return "" if PurePath(name).is_absolute() else f" in {folder}, where the command runs"
