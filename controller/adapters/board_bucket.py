"""TensorBoard's files of a run in S3, as `tensorboard --logdir s3://...` reads them."""

from __future__ import annotations

from pathlib import Path

from dyntrain.controller.adapters.aws import Clients, translated


class BoardBucket:
    """Keeps `s3://BUCKET/PREFIX/` like the folder of a run. Objects whose names have the `suffix` and that are not of
    this folder are of an earlier writer: they go as soon as ours are there, so that nothing is shown twice.
    """

    def __init__(self, clients: Clients, bucket: str, prefix: str, folder: Path, suffix: str) -> None:
        self._clients, self._bucket, self._folder, self._suffix = clients, bucket, folder, suffix
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._sizes: dict[str, int] = {}
        self._earlier: list[str] | None = None

    def sync(self) -> None:
        """Uploads what has grown. Safe to repeat after an error. Raises ControllerError."""
        s3 = self._clients.s3()
        ours = {path.name: path for path in self._folder.glob(f"*{self._suffix}")}
        with translated(f"writing s3://{self._bucket}/{self._prefix}"):
            if self._earlier is None:
                pages = s3.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=self._prefix)
                keys = [found["Key"] for page in pages for found in page.get("Contents", [])]
                self._earlier = [key for key in keys if self._is_of_the_run(key) and key not in map(self._key, ours)]
            for name, path in ours.items():
                if path.stat().st_size != self._sizes.get(name):
                    content = path.read_bytes()
                    s3.put_object(Bucket=self._bucket, Key=self._key(name), Body=content)
                    self._sizes[name] = len(content)
            while self._earlier:
                s3.delete_object(Bucket=self._bucket, Key=self._earlier[-1])
                self._earlier.pop()

    def _key(self, name: str) -> str:
        return self._prefix + name

    def _is_of_the_run(self, key: str) -> bool:
        return key.endswith(self._suffix) and "/" not in key.removeprefix(self._prefix)
