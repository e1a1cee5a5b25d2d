"""Pack a job's code into one archive. The same files always give an archive with the same bytes."""

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


def source_of(code: str) -> tuple[str, str] | None:  # bucket and key
    """The bucket and the key if `code` is an address s3://BUCKET/KEY, or None if `code` is a local folder. Raises
    GiveUp if `code` is an address of a kind other than s3://.
    """
    if not code.startswith("s3://"):
        if not_local_problem(code):
            raise GiveUp(f"{code} is no folder and no s3://BUCKET/KEY")
        return None
    bucket, _, key = code.removeprefix("s3://").partition("/")
    return bucket, key


def requirements_of(code: str, named: str | None) -> str:
    """Choose the job's requirements file for pip, as a path relative to the code's folder. `named` is the value of the
    option --requirements, where "" means no file, and None means requirements.txt if that file exists. Raises GiveUp.
    """
    if source_of(code) is not None:
        return named or ""
    if named is None:
        return REQUIREMENTS if (Path(code) / REQUIREMENTS).is_file() else ""
    if named and not (Path(code) / named).is_file():
        raise GiveUp(f"the file --requirements {named!r} is not in the code folder {code}")
    return named


@dataclass(frozen=True)
class PackedCode:
    content: bytes  # the archive
    files: int  # number of files
    digest: str  # SHA-256 of the archive


def pack(folder: Path, limit: int = LIMIT_BYTES, artifacts: str = "artifacts") -> PackedCode:
    """Pack the folder. The folder `artifacts`, into which a local trial run writes, is left out of the archive. Raises
    Misconfigured.
    """
    if not folder.is_dir():
        raise Misconfigured(f"--code {str(folder)!r} is no folder")
    file_names = sorted(_files_to_pack(folder, artifacts))
    total_bytes = sum((folder / name).stat().st_size for name in file_names)
    if total_bytes > limit:
        largest_file = max(file_names, key=lambda name: (folder / name).stat().st_size)
        raise Misconfigured(
            f"the code in {folder} has {total_bytes / 1e6:.0f} MB, more than {limit / 1e6:g} MB; the largest file is "
            f"{largest_file}; leave data out with {IGNORE_FILE}"
        )
    if not file_names:
        raise Misconfigured(f"the code folder {folder} contains no files to run")
    archive_buffer = io.BytesIO()
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=archive_buffer, mtime=0) as zip_file,
        tarfile.open(fileobj=zip_file, mode="w", format=tarfile.PAX_FORMAT) as tar_file,
    ):
        for name in file_names:
            path = folder / name
            tar_entry = tarfile.TarInfo(name)
            tar_entry.size = path.stat().st_size
            tar_entry.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            with path.open("rb") as file:
                tar_file.addfile(tar_entry, file)
    return PackedCode(archive_buffer.getvalue(), len(file_names), hashlib.sha256(archive_buffer.getvalue()).hexdigest())


def _files_to_pack(folder: Path, artifacts: str) -> Iterator[str]:
    """Yield the names of the files to pack, relative to `folder`. As with git, no file below an ignored folder is
    packed. A symbolic link is replaced by the file or folder to which the link leads. Raises Misconfigured for a
    symbolic link to a folder that contains the link.
    """
    with ignored_by(folder / IGNORE_FILE, (*ALWAYS_IGNORED, f"/{artifacts.strip('/')}/")) as ignore_filter:
        level_folders: list[tuple[str, tuple[str, ...]]] = [
            ("", (os.path.realpath(folder),))
        ]  # each folder with the real paths of its parent folders
        while level_folders:
            subfolders: dict[str, tuple[str, ...]] = {}
            level_files = []
            for parent, parent_paths in level_folders:
                for folder_entry in _folder_entries(folder / parent):
                    name = f"{parent}/{folder_entry.name}".lstrip("/")
                    if folder_entry.is_dir():
                        subfolders[name] = parent_paths
                    elif folder_entry.is_file():
                        level_files.append(name)
            ignored_names = ignore_filter(list(subfolders), level_files)
            yield from (name for name in level_files if name not in ignored_names)
            level_folders = [
                (name, _with_real_path(folder, name, parent_paths))
                for name, parent_paths in subfolders.items()
                if name not in ignored_names
            ]


def _folder_entries(path: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as folder_entries:
            return list(folder_entries)
    except OSError as error:
        raise Misconfigured(
            f"the code folder {path} cannot be read ({error.strerror}): leave it out with {IGNORE_FILE}"
        ) from error


def _with_real_path(folder: Path, name: str, parent_paths: tuple[str, ...]) -> tuple[str, ...]:
    real_path = os.path.realpath(folder / name)
    if real_path in parent_paths:
        raise Misconfigured(
            f"the link {name} in the code leads to a folder around it: remove it, or leave it out with {IGNORE_FILE}"
        )
    return (*parent_paths, real_path)
