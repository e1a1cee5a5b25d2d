"""Reads and writes the job's objects in S3."""

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

AWS_ERRORS = (BotoCoreError, ClientError, OSError, ValueError, boto3.exceptions.Boto3Error)
CONNECTION_ERRORS = (exceptions.ConnectionError, exceptions.HTTPClientError)


def aws_client(service: str, region: str) -> Any:
    config = Config(retries={"mode": "standard", "total_max_attempts": 5}, connect_timeout=5, read_timeout=30)
    make_client: Any = boto3.session.Session().client  # its type knows every service by name
    return make_client(service, region_name=region, config=config)


def error_code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code"))


class Bucket:
    """Access to the job's objects in an S3 bucket. If S3 fails, each method raises one of AWS_ERRORS."""

    def __init__(self, s3: Any, bucket: str, name: str, run: str) -> None:
        self._s3 = s3
        self._bucket, self._name, self._run = bucket, name, run
        self._uploaded: dict[str, tuple[int, int]] = {}

    def read(self, key: str) -> str | None:
        """Return the text of the object `key`, or None if there is no such object."""
        try:
            return str(self._s3.get_object(Bucket=self._bucket, Key=key)["Body"].read().decode())
        except ClientError as error:
            # AccessDenied: the answer for a missing object without permission to list
            if error_code(error) not in ("NoSuchKey", "AccessDenied"):
                raise
            return None

    def write(self, key: str, text: str) -> None:
        self._s3.put_object(Bucket=self._bucket, Key=key, Body=text.encode())

    def download(self, key: str, path: Path) -> None:
        self._s3.download_file(self._bucket, key, str(path))

    def upload(self, path: Path, key: str) -> None:
        self._s3.upload_file(str(path), self._bucket, key)

    def write_verdict(self, verdict: Exit) -> None:
        """Write the job's verdict (how the job ended), unless a verdict exists already."""
        try:
            key = verdict_key(self._name, self._run)
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=verdict.text().encode(), IfNoneMatch="*")
        except ClientError as error:
            if error_code(error) not in ("PreconditionFailed", "ConditionalRequestConflict"):
                raise

    def verdict(self) -> Exit | None:
        text = self.read(verdict_key(self._name, self._run))
        return None if text is None else exit_of(text)

    def exit_codes(self, nodes: int) -> dict[int, int | None]:
        """Return, by rank, the exit codes of the ranks that have ended."""
        exit_codes = {}
        for rank in range(nodes):
            text = self.read(rank_exit_key(self._name, self._run, rank))
            if text is not None:
                exit_codes[rank] = exit_of(text).code
        return exit_codes

    def signs_of_life(self) -> tuple[dict[int, float], set[int]]:
        """Return when each rank last wrote its sign of life, by S3's clock, and which ranks have ended."""
        last_seen: dict[int, float] = {}
        ended_ranks: set[int] = set()
        prefix = run_prefix(self._name, self._run)
        for entry in self._objects(prefix):
            rank_text, _, file_name = entry["Key"][len(prefix) :].partition("/")
            if file_name == "alive" and rank_text.isdecimal():
                last_seen[int(rank_text)] = entry["LastModified"].timestamp()
            elif file_name == "exit.json" and rank_text.isdecimal():
                ended_ranks.add(int(rank_text))
        return last_seen, ended_ranks

    def fetch_artifacts(self, folder: Path) -> int:
        """Download the artifacts of the job's earlier runs; returns the number of downloaded files."""
        prefix, file_count = artifacts_prefix(self._name), 0
        for entry in self._objects(prefix):
            name = entry["Key"][len(prefix) :]
            path = (folder / name).resolve()
            if entry["Key"].endswith("/") or folder.resolve() not in path.parents:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            self.download(entry["Key"], path)
            self._uploaded[name] = _fingerprint(path)  # this copy must not overwrite another rank's newer file
            file_count += 1
        return file_count

    def save_artifacts(self, folder: Path) -> int:
        """Upload the new and changed files of `folder`; returns the number of uploaded files.

        A connection error is raised at once. After any other error, the remaining files are uploaded before the first
        error is raised.
        """
        file_count = 0
        first_error: Exception | None = None
        for path in sorted(Path(parent) / name for parent, _, names in os.walk(folder) for name in names):
            if path.is_symlink() or not path.is_file():
                continue
            try:
                file_count += self._upload_if_changed(path, path.relative_to(folder).as_posix())
            except FileNotFoundError:
                continue  # the file was temporary
            except CONNECTION_ERRORS:
                raise
            except AWS_ERRORS as error:
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return file_count

    def _upload_if_changed(self, path: Path, name: str) -> bool:
        fingerprint = _fingerprint(path)
        if self._uploaded.get(name) == fingerprint:
            return False
        self.upload(path, artifacts_prefix(self._name) + name)
        self._uploaded[name] = fingerprint
        return True

    def _objects(self, prefix: str) -> Iterator[dict[str, Any]]:
        for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=prefix):
            yield from page.get("Contents", [])


def _fingerprint(path: Path) -> tuple[int, int]:
    """Return the file's modification time in nanoseconds and its size in bytes, to recognise a changed file."""
    file_status = os.stat(path)
    return file_status.st_mtime_ns, file_status.st_size
