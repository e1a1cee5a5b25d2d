"""The person's code as one archive: the same files give the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dyntrain.controller.contract.errors import GiveUp, Misconfigured
from dyntrain.controller.contract.folders import not_local_problem
from dyntrain.controller.jobs.submission.ignoring import ignored_by

LIMIT_BYTES = 500_000_000  # of files, before they are packed: data has no place in code
IGNORE_FILE = ".dyntrainignore"
REQUIREMENTS = "requirements.txt"
ALWAYS_IGNORED = (".git/", "__pycache__/", ".venv/", ".mypy_cache/", ".pytest_cache/", ".DS_Store", "*.pyc")


def source_of(code: str) -> tuple[str, str] | None:
    """Bucket and key of s3://BUCKET/KEY; None for a folder. Raises GiveUp for any other address."""
    if not code.startswith("s3://"):
        if not_local_problem(code):
            raise GiveUp(f"{code} is no folder and no s3://BUCKET/KEY")
        return None
    bucket, _, key = code.removeprefix("s3://").partition("/")
    return bucket, key


def requirements_of(code: str, named: str | None) -> str:
    """The requirements file for pip, relative to the code's folder. `named`: "" for none; None takes the
    requirements.txt that may be there. Raises GiveUp.
    """
    if source_of(code) is not None:
        return named or ""
    if named is None:
        return REQUIREMENTS if (Path(code) / REQUIREMENTS).is_file() else ""
    if named and not (Path(code) / named).is_file():
        raise GiveUp(f"--requirements {named!r} is not in {code}")
    return named


@dataclass(frozen=True)
class Packed:
    content: bytes
    files: int
    digest: str


def pack(folder: Path, limit: int = LIMIT_BYTES, artifacts: str = "artifacts") -> Packed:
    """Pack the folder. Artifacts of a local trial are left out. Raises Misconfigured."""
    if not folder.is_dir():
        raise Misconfigured(f"--code {str(folder)!r} is no folder")
    names = sorted(_files(folder, artifacts))
    size = sum((folder / name).stat().st_size for name in names)
    if size > limit:
        largest = max(names, key=lambda name: (folder / name).stat().st_size)
        raise Misconfigured(
            f"the code in {folder} has {size / 1e6:.0f} MB, more than {limit / 1e6:g} MB; the largest file is "
            f"{largest}; leave data out with {IGNORE_FILE}"
        )
    if not names:
        raise Misconfigured(f"there is nothing in {folder} to run")
    content = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=content, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in names:
            path = folder / name
            entry = tarfile.TarInfo(name)
            entry.size = path.stat().st_size
            entry.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            with path.open("rb") as file:
                tar.addfile(entry, file)
    return Packed(content.getvalue(), len(names), hashlib.sha256(content.getvalue()).hexdigest())


def _files(folder: Path, artifacts: str) -> Iterator[str]:
    """The files to pack. As with git, nothing below an ignored folder is included again. Links are what they lead to: a
    folder's files are in the archive as if they lay there. Raises Misconfigured for one that leads to a folder around
    it.
    """
    with ignored_by(folder / IGNORE_FILE, (*ALWAYS_IGNORED, f"/{artifacts.strip('/')}/")) as ignored:
        level: list[tuple[str, tuple[str, ...]]] = [
            ("", (os.path.realpath(folder),))
        ]  # with the folders around each, by their real names
        while level:
            folders: dict[str, tuple[str, ...]] = {}
            files = []
            for below, around in level:
                for entry in _entries(folder / below):
                    name = f"{below}/{entry.name}".lstrip("/")
                    if entry.is_dir():
                        folders[name] = around
                    elif entry.is_file():
                        files.append(name)
            left_out = ignored(list(folders), files)
            yield from (name for name in files if name not in left_out)
            level = [(name, _into(folder, name, around)) for name, around in folders.items() if name not in left_out]


def _entries(place: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place) as entries:
            return list(entries)
    except OSError as error:
        raise Misconfigured(f"{place} cannot be read ({error.strerror}): leave it out with {IGNORE_FILE}") from error


def _into(folder: Path, name: str, around: tuple[str, ...]) -> tuple[str, ...]:
    real = os.path.realpath(folder / name)
    if real in around:
        raise Misconfigured(
            f"the link {name} in the code leads to a folder around it: take it away, or leave it out with {IGNORE_FILE}"
        )
    return (*around, real)
