"""Logging as JSON lines, to a file of bounded size and to stderr (the journal), with cluster, instance and attempt."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

LOGGER_NAME = "dyntrain.node_bootstrap"
MAX_FILE_BYTES = 20 * 1024 * 1024
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formatter of JSON lines. `context` has fields for all lines; the node's identity adds fields later."""

    def __init__(self, context: dict[str, Any]) -> None:
        super().__init__()
        self.context = context

    def format(self, record: logging.LogRecord) -> str:
        fields = {name: _rounded(value) for name, value in vars(record).items() if name not in _STANDARD_FIELDS}
        line = {
            "time": round(record.created, 3),
            "level": record.levelname,
            "logger": record.name,
            **self.context,
            "message": record.getMessage(),
            **fields,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextLines(logging.Formatter):
    """Formatter for people: the message, and its fields in brackets."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        fields = [f"{name}: {_rounded(value)}" for name, value in vars(record).items() if name not in _STANDARD_FIELDS]
        return super().formatMessage(record) + (f" ({', '.join(fields)})" if fields else "")


def _rounded(value: object) -> object:
    """Round floats to three decimals."""
    return round(value, 3) if isinstance(value, float) else value


def log_lines_to_stderr() -> None:
    """Log as text to stderr, for the person who launched the node."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


@contextmanager
def logging_to(path: Path, context: dict[str, Any]) -> Iterator[None]:
    """Log to `path` and stderr while the block runs. Raises OSError if the file cannot be opened."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [
        RotatingFileHandler(path, maxBytes=MAX_FILE_BYTES, backupCount=3, encoding="utf-8"),
        logging.StreamHandler(sys.stderr),
    ]
    logger = logging.getLogger(LOGGER_NAME)
    level, propagate = logger.level, logger.propagate
    for handler in handlers:
        handler.setFormatter(JsonLines(context))
        logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(level)
        logger.propagate = propagate
