"""Latency and speed of a program that reads S3 through FIFOs, also compared with a folder.

`tenfold`: time from the start of the feed until a reader has the first 64 records, with 100 objects divided by that
with 10, from a server of 40 MB/s. `of_channel`: bytes a second through a FIFO divided by those of `job.channel`, for
the same object from a server without a limit, in pairs. `sooner`: time to the first record of 1 GB over a link of
1 Gb/s, from a folder divided by that through a FIFO (needs root and iproute2). Variants take turns; figures are
medians.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from bench_channel import KEYS, RECORD_BYTES, RECORDS, SIZES, served, serving, written
from dyntrain.training.worker.channel.records import open_channel
from figures import Figure, at_least, at_most, progress, unbounded, write
from namespaces import hosts

ROUNDS, LONG_ROUNDS = 5, 3
TENFOLD, OF_CHANNEL, SOONER = 1.5, 0.8, 3.0
BLOCK = 64_000  # bytes of a record
OBJECTS, OBJECT_RECORDS = 16, 1000  # 1 GB
MEGABITS = 1000.0
NO_LIMIT = 1e12

FIRST = "import sys; assert len(open(sys.argv[1], 'rb').read(int(sys.argv[2]))) == int(sys.argv[2])"
FAST = """
import sys, time
with open(sys.argv[1], "rb", buffering=1 << 20) as file:
    file.read(int(sys.argv[2]))
    began, size = time.monotonic(), 0
    while content := file.read(int(sys.argv[2])):
        size += len(content)
    print(size / (time.monotonic() - began))
"""


def main(out: Path) -> list[Figure]:
    os.environ.update(KEYS)
    with tempfile.TemporaryDirectory() as folder:
        soon = _soon(Path(folder))
        fast = _fast(Path(folder))
        sooner = _sooner(Path(folder))
    tenfold = soon[f"{SIZES[1]}"] / soon[f"{SIZES[0]}"]
    of_channel = statistics.median(fifo / channel for fifo, channel in zip(fast["fifo"], fast["channel"], strict=True))
    write(out, "fifo", {"first_batch_seconds": soon, "bytes_per_second": fast, "first_record_seconds": sooner})
    figures = [
        *(unbounded(f"fifo.{size}_objects.seconds", seconds) for size, seconds in soon.items()),
        at_most("fifo.tenfold", tenfold, TENFOLD),
        *(unbounded(f"{way}.megabytes_per_second", statistics.median(speeds) / 1e6) for way, speeds in fast.items()),
        at_least("fifo.of_channel", of_channel, OF_CHANNEL),
    ]
    if sooner:
        figures += [unbounded(f"{way}.first_record.seconds", seconds) for way, seconds in sooner.items()]
        figures.append(at_least("fifo.sooner", sooner["folder"] / sooner["fifo"], SOONER))
    return figures


def _feed(folder: Path, source: str, program: Sequence[str], within: Sequence[str] = ()) -> str:
    root = folder / "ml" / "input" / "data"
    words = [sys.executable, "-m", "dyntrain.training.feed", "--root", str(root), "--channel", f"train={source}"]
    reader = [sys.executable, "-c", *program]
    done = subprocess.run([*within, *words, "--", *reader], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def _seconds(folder: Path, source: str, path: str, size: int, within: Sequence[str] = ()) -> float:
    began = time.monotonic()
    _feed(folder, source, [FIRST, str(folder / "ml" / "input" / "data" / path), str(size)], within)
    return time.monotonic() - began


def _soon(folder: Path) -> dict[str, float]:
    seconds: dict[str, list[float]] = {f"{size}": [] for size in SIZES}
    place = folder / "soon"
    place.mkdir()
    with served(place) as endpoint:
        os.environ["AWS_ENDPOINT_URL"] = endpoint
        for _ in range(ROUNDS):
            for size in SIZES:
                seconds[f"{size}"].append(_seconds(folder, f"s3://data/{size}/", "train_0", RECORDS * RECORD_BYTES))
    progress(f"first batch: {seconds}")
    return {size: statistics.median(times) for size, times in seconds.items()}


def _fast(folder: Path) -> dict[str, list[float]]:
    place = folder / "fast" / "one"
    place.mkdir(parents=True)
    written(place / "0.rec", 4000, BLOCK)
    speeds: dict[str, list[float]] = {"channel": [], "fifo": []}
    with serving(place.parent, NO_LIMIT) as endpoint:
        os.environ["AWS_ENDPOINT_URL"] = endpoint
        for _ in range(ROUNDS):
            (records,) = open_channel("s3://data/one/")
            len(records[0])
            began = time.monotonic()
            size = sum(len(records[index]) for index in range(1, len(records)))
            speeds["channel"].append(size / (time.monotonic() - began))
            path = str(folder / "ml" / "input" / "data" / "train_0")
            speeds["fifo"].append(float(_feed(folder, "s3://data/one/", [FAST, path, str(BLOCK)])))
    progress(f"bytes a second: {speeds}")
    return speeds


def _sooner(folder: Path) -> dict[str, float]:
    if os.geteuid():
        progress("fifo.sooner wants root and iproute2")
        return {}
    place = folder / "gigabyte" / "all"
    place.mkdir(parents=True)
    written(place / "0.rec", OBJECT_RECORDS, BLOCK)
    (place / "0.idx").unlink()
    for number in range(1, OBJECTS):
        os.link(place / "0.rec", place / f"{number}.rec")
    seconds: dict[str, list[float]] = {"fifo": [], "folder": []}
    with ExitStack() as stack:
        network = stack.enter_context(hosts(2, MEGABITS))
        server = serving(place.parent, NO_LIMIT, network.addresses[0], network.within(0, []))
        os.environ["AWS_ENDPOINT_URL"] = stack.enter_context(server)
        for _ in range(LONG_ROUNDS):
            there = network.within(1, [])
            seconds["fifo"].append(_seconds(folder, "s3://data/all/", "train_0", BLOCK, there))
            seconds["folder"].append(_seconds(folder, "s3://data/all/,mode=file", "train/0.rec", BLOCK, there))
            for path in (folder / "ml" / "input" / "data" / "train").iterdir():
                path.unlink()
    progress(f"first record: {seconds}")
    return {way: statistics.median(times) for way, times in seconds.items()}
