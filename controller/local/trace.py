"""The embedded cloud's trace, a log of JSON lines in `logs/trace.jsonl`: events, handler invocations, instance states,
internal errors.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any


class CloudTrace:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, kind: str, **fields: Any) -> None:
        line = json.dumps({"at": round(time.time(), 4), "kind": kind, **fields}, default=str)
        with self._lock:
            if not self._file.closed:
                self._file.write(line + "\n")
                self._file.flush()

    def write_error(self, text: str) -> None:
        """Write an internal error of the embedded cloud to the trace; the cloud continues."""
        self.write("internal-error", traceback=text)

    def close(self) -> None:
        with self._lock:
            self._file.close()
