"""What rules tell of a script that trains on."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def tells(code: str, *words: str) -> Iterator[None]:
    """The script within trains to its end, and is told of by this rule; the `words` (regular expressions) are said."""
    logger, heard = logging.getLogger("dyntrain.training.checks.findings"), _Lines()
    logger.addHandler(heard)
    try:
        yield
    finally:
        logger.removeHandler(heard)
    own = [line for line in heard.lines if re.search(rf"\.py:\d+: {code}: ", line)]
    assert own, f"{code} was not told: {heard.lines}"
    assert all(any(re.search(each, line) for line in own) for each in words), own
