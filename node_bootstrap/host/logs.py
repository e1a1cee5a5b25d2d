"""Logs JSON lines to a file of bounded size and to stderr, which systemd's journal records.

Each line contains the cluster, the instance and the attempt once they are known.
"""

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
MAX_LOG_FILE_BYTES = 20 * 1024 * 1024
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """Formats log records as JSON lines.

    `context` contains the fields that every line gets; the caller may add fields later.
    """

    def __init__(self, context: dict[str, Any]) -> None:
        super().__init__()
        self.context = context

    def format(self, record: logging.LogRecord) -> str:
        extra_fields = {
            field_name: _round_if_float(value)
            for field_name, value in vars(record).items()
            if field_name not in _STANDARD_FIELDS
        }
        log_line = {
            "time": round(record.created, 3),
            "level": record.levelname,
            "logger": record.name,
            **self.context,
            "message": record.getMessage(),
            **extra_fields,
        }
        if record.exc_info:
            log_line["exception"] = self.formatException(record.exc_info)
        return json.dumps(log_line, default=str)


class TextLines(logging.Formatter):
    """Formats log records as readable text: the message, followed by the record's fields in brackets."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        extra_fields = [
            f"{field_name}: {_round_if_float(value)}"
            for field_name, value in vars(record).items()
            if field_name not in _STANDARD_FIELDS
        ]
        return super().formatMessage(record) + (f" ({', '.join(extra_fields)})" if extra_fields else "")


def _round_if_float(value: object) -> object:
    """Return a float rounded to three decimals, and any other value unchanged."""
    return round(value, 3) if isinstance(value, float) else value


def log_lines_to_stderr() -> None:
    """Make the logger write lines of text to stderr, for the person who launched the node."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


@contextmanager
def logging_to(path: Path, context: dict[str, Any]) -> Iterator[None]:
    """Log to the file `path` and to stderr while the `with` block runs. Raises OSError if the file cannot be opened."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = [
        RotatingFileHandler(path, maxBytes=MAX_LOG_FILE_BYTES, backupCount=3, encoding="utf-8"),
        logging.StreamHandler(sys.stderr),
    ]
    logger = logging.getLogger(LOGGER_NAME)
    earlier_level, earlier_propagate = logger.level, logger.propagate
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
        logger.setLevel(earlier_level)
        logger.propagate = earlier_propagate
