"""Finds the files and folders that the patterns in .dyntrainignore leave out, one level of folders at a time. The
patterns are matched by git, or by a Python library if git does not work.

Git runs in a temporary empty repository, to which folders are added level by level. In the temporary repository, git
reads no ignore file besides .dyntrainignore, follows no symbolic link, and treats a git repository inside the code as a
folder.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from dyntrain.controller.contract.errors import Misconfigured
from pathspec import GitIgnoreSpec, RegexPattern

GIT_TIMEOUT_SECONDS = 300.0  # for a level of the folder, with any number of files
FOLDER_SLASH_GROUP = "ps_d"  # the library's group for the slash behind a folder
_UTF8_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = (b"\xff\xfe", b"\xfe\xff")


class IgnoreFilter(Protocol):
    def __call__(self, folders: Sequence[str], files: Sequence[str]) -> set[str]:
        """Return the names of folders and files that the ignore patterns leave out. All given names are on one level of
        folders, below parent folders that are not left out.
        """


@contextmanager
def ignored_by(file: Path, default_patterns: Sequence[str]) -> Iterator[IgnoreFilter]:
    """Build a filter of ignored names from `default_patterns`, followed by the patterns in `file` if the file exists.

    Raises Misconfigured for a file that cannot be read as a .gitignore.
    """
    file_patterns = _read_patterns(file)
    patterns = b"".join(line.encode() + b"\n" for line in default_patterns) + file_patterns
    with tempfile.TemporaryDirectory(prefix="dyntrain-ignore-") as temporary_folder:
        git_filter = _GitFilter(Path(temporary_folder), patterns)
        if git_filter.git_works():
            yield git_filter
            return
    yield _LibraryFilter(file, patterns.decode())


class _LibraryFilter:
    """A filter that matches the ignore patterns with the Python library pathspec. The parent folders of the filtered
    names must not themselves be ignored.
    """

    def __init__(self, file: Path, patterns: str) -> None:
        pattern_lines = [line.removesuffix("\r") for line in patterns.split("\n")]
        if any("[[:" in line for line in pattern_lines):
            raise Misconfigured(
                f"{file} cannot be applied: only git understands [[: :]], and git is not installed; list the characters"
            )
        try:
            library_patterns = GitIgnoreSpec.from_lines(pattern_lines).patterns
        except ValueError as error:
            raise Misconfigured(f"{file} cannot be read as a .gitignore: {error}") from error
        self._rules: list[tuple[bool, re.Pattern[str]]] = [
            (bool(pattern.include), pattern.regex)
            for pattern in library_patterns
            if isinstance(pattern, RegexPattern) and pattern.regex
        ]

    def __call__(self, folders: Sequence[str], files: Sequence[str]) -> set[str]:
        return {
            *(name for name in folders if self._is_left_out(name, f"{name}/")),
            *(name for name in files if self._is_left_out(name, "")),
        }

    def _is_left_out(self, name: str, as_folder: str) -> bool:
        """Whether the last pattern that matches the name is a pattern that ignores the name."""
        for is_ignored, regex in reversed(self._rules):
            if any(match.groupdict().get(FOLDER_SLASH_GROUP) is None for match in regex.finditer(name)):
                return is_ignored
            match_ends = [
                match.end(FOLDER_SLASH_GROUP)
                for match in regex.finditer(as_folder)
                if match.groupdict().get(FOLDER_SLASH_GROUP)
            ]
            if as_folder and len(as_folder) in match_ends:
                return is_ignored
        return False


def _read_patterns(file: Path) -> bytes:
    """The content of the ignore file, without the byte order mark that editors on Windows write."""
    try:
        file_content = file.read_bytes()
    except FileNotFoundError:
        return b""
    if file_content.startswith(_UTF16_BOMS):
        raise Misconfigured(f"{file} cannot be read as a .gitignore: it is UTF-16; save it as UTF-8")
    file_content = file_content.removeprefix(_UTF8_BOM)
    try:
        file_content.decode()
    except UnicodeDecodeError as error:
        raise Misconfigured(f"{file} cannot be read as a .gitignore: {error}; save it as UTF-8") from error
    return file_content


class _GitFilter:
    def __init__(self, place: Path, patterns: bytes) -> None:
        self._tree, self._patterns = place / "tree", place / "patterns"
        self._patterns.write_bytes(patterns)
        self._tree.mkdir()
        inherited_env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        no_git_configuration = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        self._environment = {**inherited_env, **no_git_configuration, "HOME": str(place), "XDG_CONFIG_HOME": str(place)}

    def git_works(self) -> bool:
        """Whether git works on this machine. Raises nothing."""
        try:
            return self._run("init", "--quiet", "--template=").returncode == 0 and self([], ["a"]) is not None
        except (OSError, subprocess.SubprocessError, Misconfigured):
            return False

    def __call__(self, folders: Sequence[str], files: Sequence[str]) -> set[str]:
        for name in folders:
            (self._tree / name).mkdir(parents=True, exist_ok=True)
        # "./", because git interprets a leading colon
        nul_ended_names = b"".join(b"./" + os.fsencode(name) + b"\0" for name in (*folders, *files))
        if not nul_ended_names:
            return set()
        process = self._run(
            "check-ignore", "--no-index", "--verbose", "--non-matching", "-z", "--stdin", stdin=nul_ended_names
        )
        if process.returncode not in (0, 1):  # exit code 1: no path is left out
            raise Misconfigured(f"git cannot apply the ignore patterns: {os.fsdecode(process.stderr).strip()}")
        output_fields = process.stdout.split(b"\0")  # of each path: file, line, pattern, path
        patterns_and_paths = zip(output_fields[2::4], output_fields[3::4], strict=False)
        return {
            os.fsdecode(path[2:]) for pattern, path in patterns_and_paths if pattern and not pattern.startswith(b"!")
        }

    def _run(self, *git_arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["git", "-c", f"core.excludesFile={self._patterns}", *git_arguments],
            cwd=self._tree,
            env=self._environment,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=GIT_TIMEOUT_SECONDS,
        )
