"""Finds the entries that .dyntrainignore leaves out, one level of folders at a time, with git or else a library.

Git runs in a temporary empty repository, to which folders are added level by level. So git reads no other ignore file,
follows no link, and treats a repository inside the code as a folder.
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

GIT_SECONDS = 300.0  # for a level of the folder, with any number of files
OF_FOLDER = "ps_d"  # the library's group for the slash behind a folder
_BOM = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class Ignored(Protocol):
    def __call__(self, folders: Sequence[str], files: Sequence[str]) -> set[str]:
        """Return the entries to leave out. All entries are of one level, in folders that are not left out."""


@contextmanager
def ignored_by(file: Path, default_patterns: Sequence[str]) -> Iterator[Ignored]:
    """Build the filter from `default_patterns`, then the patterns of `file`, if it exists.

    Raises Misconfigured for a file that cannot be read as a .gitignore.
    """
    content = _content(file)
    patterns = b"".join(line.encode() + b"\n" for line in default_patterns) + content
    with tempfile.TemporaryDirectory(prefix="dyntrain-ignore-") as place:
        git = _Git(Path(place), patterns)
        if git.works():
            yield git
            return
    yield _Library(file, patterns.decode())


class _Library:
    """Filter by the library's patterns, for entries in folders that are not ignored."""

    def __init__(self, file: Path, patterns: str) -> None:
        lines = [line.removesuffix("\r") for line in patterns.split("\n")]
        if any("[[:" in line for line in lines):
            raise Misconfigured(f"{file}: only git understands [[: :]], and git is not installed: list the characters")
        try:
            library_patterns = GitIgnoreSpec.from_lines(lines).patterns
        except ValueError as error:
            raise Misconfigured(f"{file} cannot be read as a .gitignore: {error}") from error
        self._rules: list[tuple[bool, re.Pattern[str]]] = [
            (bool(pattern.include), pattern.regex)
            for pattern in library_patterns
            if isinstance(pattern, RegexPattern) and pattern.regex
        ]

    def __call__(self, folders: Sequence[str], files: Sequence[str]) -> set[str]:
        return {
            *(name for name in folders if self._left_out(name, f"{name}/")),
            *(name for name in files if self._left_out(name, "")),
        }

    def _left_out(self, name: str, as_folder: str) -> bool:
        """Whether the last pattern that matches the entry itself ignores it."""
        for include, regex in reversed(self._rules):
            if any(match.groupdict().get(OF_FOLDER) is None for match in regex.finditer(name)):
                return include
            ends = [match.end(OF_FOLDER) for match in regex.finditer(as_folder) if match.groupdict().get(OF_FOLDER)]
            if as_folder and len(as_folder) in ends:
                return include
        return False


def _content(file: Path) -> bytes:
    """The file's text without the byte order mark that editors on Windows write."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        return b""
    if content.startswith(_UTF16):
        raise Misconfigured(f"{file} cannot be read as a .gitignore: it is UTF-16; save it as UTF-8")
    content = content.removeprefix(_BOM)
    try:
        content.decode()
    except UnicodeDecodeError as error:
        raise Misconfigured(f"{file} cannot be read as a .gitignore: {error}; save it as UTF-8") from error
    return content


class _Git:
    def __init__(self, place: Path, patterns: bytes) -> None:
        self._tree, self._patterns = place / "tree", place / "patterns"
        self._patterns.write_bytes(patterns)
        self._tree.mkdir()
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        no_configuration = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        self._environment = {**inherited, **no_configuration, "HOME": str(place), "XDG_CONFIG_HOME": str(place)}

    def works(self) -> bool:
        """Whether git works on this machine. Raises nothing."""
        try:
            return self._run("init", "--quiet", "--template=").returncode == 0 and self([], ["a"]) is not None
        except (OSError, subprocess.SubprocessError, Misconfigured):
            return False

    def __call__(self, folders: Sequence[str], files: Sequence[str]) -> set[str]:
        for name in folders:
            (self._tree / name).mkdir(parents=True, exist_ok=True)
        # "./", because git interprets a leading colon
        names = b"".join(b"./" + os.fsencode(name) + b"\0" for name in (*folders, *files))
        if not names:
            return set()
        process = self._run("check-ignore", "--no-index", "--verbose", "--non-matching", "-z", "--stdin", stdin=names)
        if process.returncode not in (0, 1):  # exit code 1: no path is left out
            raise Misconfigured(f"git cannot apply the ignore patterns: {os.fsdecode(process.stderr).strip()}")
        fields = process.stdout.split(b"\0")  # of each path: file, line, pattern, path
        decided = zip(fields[2::4], fields[3::4], strict=False)
        return {os.fsdecode(path[2:]) for pattern, path in decided if pattern and not pattern.startswith(b"!")}

    def _run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["git", "-c", f"core.excludesFile={self._patterns}", *words],
            cwd=self._tree,
            env=self._environment,
            input=stdin,
            capture_output=True,
            check=False,
            timeout=GIT_SECONDS,
        )
