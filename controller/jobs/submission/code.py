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

LIMIT_BYTES = 500_000_000  # limit of the unpacked files, since code should contain no data
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
    """The requirements file for pip, relative to the code's folder. `named`: the option's value,
    "" for no file; None: requirements.txt, if it exists. Raises GiveUp.
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
        gzip.GzipFile(filename="", mode="wb", fileobj=content, mtime=0) as zip_file,
        tarfile.open(fileobj=zip_file, mode="w", format=tarfile.PAX_FORMAT) as tar,
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
    """Yield the files to pack. As with git, nothing below an ignored folder is included. A link is replaced by the file
    or folder to which it leads. Raises Misconfigured for a link to a folder that contains the link.
    """
    with ignored_by(folder / IGNORE_FILE, (*ALWAYS_IGNORED, f"/{artifacts.strip('/')}/")) as ignored:
        level: list[tuple[str, tuple[str, ...]]] = [
            ("", (os.path.realpath(folder),))
        ]  # each folder with the real paths of its parent folders
        while level:
            folders: dict[str, tuple[str, ...]] = {}
            files = []
            for parent, parents in level:
                for entry in _entries(folder / parent):
                    name = f"{parent}/{entry.name}".lstrip("/")
                    if entry.is_dir():
                        folders[name] = parents
                    elif entry.is_file():
                        files.append(name)
            left_out = ignored(list(folders), files)
            yield from (name for name in files if name not in left_out)
            level = [
                (name, _parents_of(folder, name, parents)) for name, parents in folders.items() if name not in left_out
            ]


def _entries(place: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place) as entries:
            return list(entries)
    except OSError as error:
        raise Misconfigured(f"{place} cannot be read ({error.strerror}): leave it out with {IGNORE_FILE}") from error


def _parents_of(folder: Path, name: str, parents: tuple[str, ...]) -> tuple[str, ...]:
    real_path = os.path.realpath(folder / name)
    if real_path in parents:
        raise Misconfigured(
            f"the link {name} in the code leads to a folder around it: remove it, or leave it out with {IGNORE_FILE}"
        )
    return (*parents, real_path)
