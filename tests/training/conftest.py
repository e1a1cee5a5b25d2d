"""Fixtures of the training tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from job_bed import HOLD, JobBed

TINY = str(Path(__file__).parent / "tiny_job.py")


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
