"""Fixtures of the training tests."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from channel_bed import endpoint, s3, through  # noqa: F401 - fixtures of all that read channels
from feed_bed import Feed
from job_bed import HOLD, JobBed
from launched_job import Launched, ssh_server
from session_driver import A, B, C, Driver

TINY = str(Path(__file__).parent / "tiny_job.py")


@pytest.fixture
def reported_codes(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The codes of the rules that were told of, in their order."""
    return lambda: re.findall(r"\b(DT\d{3}): ", caplog.text)


@pytest.fixture(autouse=True)
def _layers_counted_from_zero() -> Iterator[None]:
    """A test's layers have the names of a process of its own. Gluon counts layers, and its Trainer sorts by name: the
    nets of one script would be in two orders where `dense9` and `dense10` come after other tests' layers.
    """
    if "mxnet" not in sys.modules:
        yield
        return
    import mxnet as mx

    with mx.name.NameManager():
        yield


@pytest.fixture(autouse=True)
def _left_loops_closed() -> Iterator[None]:
    """A loop that a test has left is closed with it: some seconds later, that would be in another test's log."""
    yield
    if (leaving := sys.modules.get("dyntrain.training.worker.script.leaving")) is None:
        return
    for timer in threading.enumerate():
        if isinstance(timer, threading.Timer) and timer.function is leaving._close:
            timer.cancel()
            timer.args[0].close()


@pytest.fixture
def make_bed(tmp_path: Path) -> Iterator[Callable[..., JobBed]]:
    """`make_bed(*script arguments, **session options)`: a job that ends with the test, whatever happens."""
    beds: list[JobBed] = []

    def make(*arguments: str, **options: Any) -> JobBed:
        beds.append(JobBed(tmp_path, [sys.executable, TINY, "--hold", str(tmp_path / HOLD), *arguments], **options))
        return beds[-1]

    yield make
    for bed in beds:
        bed.close()


@pytest.fixture
def driver() -> Driver:
    """Two workers that train, on two base nodes without spare ps-lite processes."""
    driver = Driver()
    driver.train(A, B)
    return driver


@pytest.fixture
def three() -> Driver:
    """Three workers that train, and ps-lite processes for the next generation."""
    driver = Driver(workers=3)
    driver.train(A, B, C)
    for name in (A, B):
        driver.blanks(name)
    return driver


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    jobs: list[Launched] = []

    def start(*options: str, **kwargs: Any) -> Launched:
        jobs.append(Launched(tmp_path / "job", *options, **kwargs))
        return jobs[-1]

    yield start
    for job in jobs:
        job.close()


@pytest.fixture
def ssh_environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    with ssh_server(tmp_path) as environment:
        yield environment


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Callable[[str], Feed]]:
    """A feed by the machine's name."""
    feeds: list[Feed] = []

    def of(name: str) -> Feed:
        (tmp_path / name).mkdir()
        feeds.append(Feed(tmp_path / name))
        return feeds[-1]

    yield of
    for feed in feeds:
        feed.end()


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    bed = Feed(tmp_path)
    yield bed
    bed.end()
