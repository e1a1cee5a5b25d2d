"""What rules tell of a script that trains on."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def tells(code: str, *words: str) -> Iterator[None]:
    """The script within trains to its end, and is told of by this rule; the `words` (regular expressions) are said."""
    heard, handler = list[str](), logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("dyntrain.training.checks.findings")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    own = [line for line in heard if re.search(rf"\.py:\d+: {code}: ", line)]
    assert own, f"{code} was not told: {heard}"
    assert all(any(re.search(each, line) for line in own) for each in words), own
