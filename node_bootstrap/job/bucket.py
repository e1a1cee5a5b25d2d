"""The job's part of its bucket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
from botocore import exceptions
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from dyntrain.controller.contract.job_files import (
    Exit,
    artifacts_prefix,
    exit_of,
    rank_exit_key,
    run_prefix,
    verdict_key,
)

PROBLEMS = (BotoCoreError, ClientError, OSError, ValueError, boto3.exceptions.Boto3Error)
AWAY = (exceptions.ConnectionError, exceptions.HTTPClientError)


def client(service: str, region: str) -> Any:
    config = Config(retries={"mode": "standard", "total_max_attempts": 5}, connect_timeout=5, read_timeout=30)
    made: Any = boto3.session.Session().client  # its type knows every service by name
    return made(service, region_name=region, config=config)


def error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code"))


class Bucket:
    """Methods raise one of PROBLEMS, but for what their names say."""

    def __init__(self, s3: Any, bucket: str, name: str, run: str) -> None:
        self._s3 = s3
        self._bucket, self._name, self._run = bucket, name, run
        self._sent: dict[str, tuple[int, int]] = {}

    def read(self, key: str) -> str | None:
        """None: there is no such object."""
        try:
            return str(self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read().decode())
        except ClientError as error:
            # AccessDenied: so a role that may not list the bucket is told of what is not there
            if error_code(error) not in ("NoSuchKey", "AccessDenied"):
                raise
            return None

    def write(self, key: str, text: str) -> None:
        self._s3.put_object(Bucket=self._bucket, Key=key, Body=text.encode())

    def download(self, key: str, path: Path) -> None:
        self._s3.download_file(self._bucket, key, str(path))

    def upload(self, path: Path, key: str) -> None:
        self._s3.upload_file(str(path), self._bucket, key)

    def settle(self, verdict: Exit) -> None:
        """The job's verdict, unless there is one."""
        try:
            key = verdict_key(self._name, self._run)
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=verdict.text().encode(), IfNoneMatch="*")
        except ClientError as error:
            if error_code(error) not in ("PreconditionFailed", "ConditionalRequestConflict"):
                raise

    def verdict(self) -> Exit | None:
        text = self.read(verdict_key(self._name, self._run))
        return None if text is None else exit_of(text)

    def codes(self, nodes: int) -> dict[int, int | None]:
        """Of the ranks that have ended."""
        found = {}
        for rank in range(nodes):
            text = self.read(rank_exit_key(self._name, self._run, rank))
            if text is not None:
                found[rank] = exit_of(text).code
        return found

    def signs_of_life(self) -> tuple[dict[int, float], set[int]]:
        """When each rank was last heard of, by S3's clock, and which have ended."""
        seen: dict[int, float] = {}
        ended: set[int] = set()
        prefix = run_prefix(self._name, self._run)
        for found in self._objects(prefix):
            rank, _, leaf = found["Key"][len(prefix) :].partition("/")
            if leaf == "alive" and rank.isdecimal():
                seen[int(rank)] = found["LastModified"].timestamp()
            elif leaf == "exit.json" and rank.isdecimal():
                ended.add(int(rank))
        return seen, ended

    def fetch_artifacts(self, folder: Path) -> int:
        """What earlier runs have saved, back in its place; returns how many files."""
        prefix, number = artifacts_prefix(self._name), 0
        for found in self._objects(prefix):
            name = found["Key"][len(prefix) :]
            path = (folder / name).resolve()
            if found["Key"].endswith("/") or folder.resolve() not in path.parents:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            self.download(found["Key"], path)
            self._sent[name] = _mark(path)  # else an old copy of another rank's file would go over its newer one
            number += 1
        return number

    def save_artifacts(self, folder: Path) -> int:
        """What is new in the folder or has changed since; returns how many files. A file that cannot be saved keeps no
        other from being saved; the first problem is raised when all have been tried, or S3 is away.
        """
        number = 0
        problem: Exception | None = None
        for path in sorted(Path(place) / name for place, _, names in os.walk(folder) for name in names):
            if path.is_symlink() or not path.is_file():
                continue
            try:
                number += self._save(path, path.relative_to(folder).as_posix())
            except FileNotFoundError:
                continue  # it was a file on the way to another
            except AWAY:
                raise
            except PROBLEMS as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return number

    def _save(self, path: Path, name: str) -> bool:
        mark = _mark(path)
        if self._sent.get(name) == mark:
            return False
        self.upload(path, artifacts_prefix(self._name) + name)
        self._sent[name] = mark
        return True

    def _objects(self, prefix: str) -> Iterator[dict[str, Any]]:
        for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix):
            yield from page.get("Contents", [])


def _mark(path: Path) -> tuple[int, int]:
    """Changes when the file does."""
    state = os.stat(path)
    return state.st_mtime_ns, state.st_size
