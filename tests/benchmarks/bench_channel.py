"""Time to the first batch of an S3 channel, with 10 objects and with 100.

The channel is read during training, or first copied to the node, as a prepare-data script would. Objects have 1 MB and
64 records each; the server limits all connections together to 40 MB/s. The two methods and sizes take turns; figures
are medians of `ROUNDS`. `tenfold` is the time with 100 objects divided by that with 10.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
from dyntrain.training.worker.channel.records import open_channel
from dyntrain.training.worker.data.loader import Load, Loader
from dyntrain.training.worker.data.shards import Shards
from figures import Figure, at_most, unbounded, write

import mxnet as mx  # isort: skip
import numpy as np

ROUNDS, BATCH = 5, 64
RECORDS, RECORD_BYTES = 64, 16_384
SIZES = (10, 100)
LINK = 40e6  # bytes a second
TENFOLD = 2.0
KEYS = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_DEFAULT_REGION": "us-east-1"}


def main(out: Path) -> list[Figure]:
    seconds: dict[str, list[float]] = {f"{way}.{size}": [] for way in ("read", "copied") for size in SIZES}
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as endpoint:
        os.environ.update(KEYS, AWS_ENDPOINT_URL=endpoint)
        for _ in range(ROUNDS):
            for size in SIZES:
                seconds[f"read.{size}"].append(_timed(_read, size))
                seconds[f"copied.{size}"].append(_timed(_copied, size))
    medians = {name: statistics.median(measured) for name, measured in seconds.items()}
    tenfold = {way: medians[f"{way}.100"] / medians[f"{way}.10"] for way in ("read", "copied")}
    write(out, "channel", {"seconds": medians, "tenfold": tenfold})
    figures = [unbounded(f"channel.{name}_objects.seconds", value) for name, value in medians.items()]
    return [
        *figures,
        at_most("channel.read.tenfold", tenfold["read"], TENFOLD),
        unbounded("channel.copied.tenfold", tenfold["copied"]),
    ]


def _timed(way: Any, size: int) -> float:
    began = time.monotonic()
    batch = way(size)
    assert batch.shape == (BATCH, RECORD_BYTES)
    return time.monotonic() - began


def _decode(record: bytes) -> Any:
    return np.frombuffer(record, np.uint8)


def _first(shards: Shards) -> Any:
    indices = shards.order.epoch(0, 0, BATCH)[:BATCH]
    return Loader(shards.transform(_decode)).take(iter([Load(0, 0, indices)]))


def _read(size: int) -> Any:
    return _first(Shards(open_channel(f"s3://data/{size}/")))


def _copied(size: int) -> Any:
    s3: Any = boto3.Session().client("s3")
    with tempfile.TemporaryDirectory() as folder:
        names = [f"{number:04d}{suffix}" for number in range(size) for suffix in (".rec", ".idx")]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda name: s3.download_file("data", f"{size}/{name}", f"{folder}/{name}"), names))
        files = sorted(Path(folder).glob("*.rec"))
        return _first(Shards([mx.gluon.data.RecordFileDataset(str(file)) for file in files]))


@contextmanager
def served(folder: Path) -> Iterator[str]:
    for size in SIZES:
        (folder / str(size)).mkdir()
        for number in range(size):
            written(folder / str(size) / f"{number:04d}.rec", RECORDS, RECORD_BYTES)
    with serving(folder, LINK) as endpoint:
        yield endpoint


def written(file: Path, records: int, size: int) -> None:
    writer = mx.recordio.MXIndexedRecordIO(str(file.with_suffix(".idx")), str(file), "w")
    for key in range(records):
        writer.write_idx(key, os.urandom(size))
    writer.close()


@contextmanager
def serving(folder: Path, speed: float, address: str = "127.0.0.1", within: Sequence[str] = ()) -> Iterator[str]:
    """Run the server; `within` is the prefix of a command that starts it in another network namespace."""
    command = [*within, sys.executable, __file__, str(folder), str(speed), address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


# ---- the server, a process of its own: the part of S3 that is used here


def serve(folder: Path, speed: float, address: str) -> None:
    link = _Link(speed)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            with suppress(ConnectionError):  # the reader closed the connection once it had its data
                super().handle()

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            if "list-type" in url.query:
                self._send(200, _listing(folder, parse_qs(url.query)["prefix"][0]), {"Content-Type": "text/xml"})
                return
            path = folder / url.path.removeprefix("/data/")
            size = path.stat().st_size
            first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
            start, end = int(first), int(last or size - 1) + 1
            headers = {"Content-Range": f"bytes {start}-{end - 1}/{size}", "ETag": '"1"'}
            with path.open("rb") as file:
                file.seek(start)
                self._send(206 if "Range" in self.headers else 200, file.read(end - start), headers)

        def do_HEAD(self) -> None:
            size = (folder / self.path.removeprefix("/data/")).stat().st_size
            self.send_response(200)
            self.send_header("Content-Length", str(size))
            self.send_header("ETag", '"1"')
            self.end_headers()

        def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            view = memoryview(body)
            for at in range(0, len(body), 65_536):
                piece = view[at : at + 65_536]
                link.wait(len(piece))
                self.wfile.write(piece)

        def log_message(self, format: str, *given: object) -> None:  # noqa: A002  # the library's name
            pass

    server = ThreadingHTTPServer((address, 0), Handler)
    print(f"http://{address}:{server.server_address[1]}", flush=True)  # noqa: T201
    server.serve_forever()


def _listing(folder: Path, prefix: str) -> bytes:
    contents = "".join(
        f'<Contents><Key>{file.relative_to(folder)}</Key><Size>{file.stat().st_size}</Size><ETag>"1"</ETag></Contents>'
        for file in sorted((folder / prefix).iterdir())
    )
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>".encode()


class _Link:
    """A link that all connections share."""

    def __init__(self, speed: float) -> None:
        self._speed, self._free = speed, time.monotonic()
        self._lock = threading.Lock()

    def wait(self, size: int) -> None:
        with self._lock:
            self._free = max(self._free, time.monotonic()) + size / self._speed
            until = self._free
        time.sleep(max(0.0, until - time.monotonic()))


if __name__ == "__main__":
    serve(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3])
