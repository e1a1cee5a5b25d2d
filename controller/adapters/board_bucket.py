"""Upload a training run's TensorBoard files to S3, where `tensorboard --logdir s3://...` can read the files."""

from __future__ import annotations

from pathlib import Path

from dyntrain.controller.adapters.aws import Clients, translated_errors


class BoardBucket:
    """Uploads the files in `folder` whose names end with `suffix` to `s3://BUCKET/PREFIX/`.

    Files of earlier writers stay in the bucket, because TensorBoard stops updating all its runs when a file that
    TensorBoard has open is deleted. Each writer's file begins with an entry that makes TensorBoard discard the values
    of earlier files.
    """

    def __init__(self, clients: Clients, bucket: str, prefix: str, folder: Path, suffix: str) -> None:
        self._clients, self._bucket, self._folder, self._suffix = clients, bucket, folder, suffix
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._sizes: dict[str, int] = {}

    def sync(self) -> None:
        """Upload each file whose size has changed since the file's last upload. The upload may safely be repeated after
        errors. Raises ControllerError.
        """
        s3 = self._clients.s3()
        paths_by_name = {path.name: path for path in sorted(self._folder.glob(f"*{self._suffix}"))}
        with translated_errors(f"writing s3://{self._bucket}/{self._prefix}"):
            for name, path in paths_by_name.items():
                if path.stat().st_size != self._sizes.get(name):
                    content = path.read_bytes()
                    s3.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=content)
                    self._sizes[name] = len(content)
