"""What becomes of a command's output while CloudWatch takes it, and while it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError
from dyntrain.node_bootstrap.job.output import BATCH_BYTES, BATCH_EVENTS, EVENT_BYTES, WAITING_LINES, Output
from waiting import wait_for


class Logs:
    """CloudWatch Logs. While `refusing`, a call takes as long as the command needs for another line."""

    def __init__(self) -> None:
        self.output: Output | None = None
        self.refusing = True
        self.refused = 0
        self.batches: list[list[str]] = []

    def create_log_group(self, **_request: str) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "CreateLogGroup")

    def create_log_stream(self, **_request: str) -> None:
        raise ClientError({"Error": {"Code": "ResourceAlreadyExistsException"}}, "CreateLogStream")

    def put_log_events(self, *, logEvents: list[dict[str, Any]], **_request: str) -> None:  # noqa: N803
        if self.refusing:
            assert self.output is not None
            self.refused += 1
            self.output.write_line(b"late %d" % self.refused)
            raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "Rate exceeded"}}, "PutLogEvents")
        self.batches.append([event["message"] for event in logEvents])


def test_while_cloudwatch_takes_nothing_the_oldest_lines_go_and_the_rest_comes_in_order_afterwards(
    tmp_path: Path,
) -> None:
    logs = Logs()
    output = logs.output = Output(tmp_path / "output.log", "mnist_0", lambda: logs, pause=0.01)
    for number in range(WAITING_LINES):
        output.write_line(b"%d %s" % (number, b"x" * 150 if number % 20_000 < 10_000 else b""))
    full = logs.refused
    wait_for(lambda: logs.refused > full + 2, 60.0, "lines that came while all room was taken")
    logs.refusing = False
    output.close()
    shipped = [line for batch in logs.batches for line in batch]
    written = [line for line in (tmp_path / "output.log").read_text().splitlines() if "dyntrain: " not in line]
    assert len(shipped) == WAITING_LINES
    assert shipped == written[-WAITING_LINES:]
    assert shipped[-1] == f"late {logs.refused}"
    assert max(map(len, logs.batches)) == BATCH_EVENTS
    sizes = [sum(len(line) + EVENT_BYTES for line in batch) for batch in logs.batches]
    assert BATCH_BYTES * 0.9 < max(sizes) <= BATCH_BYTES
    text = (tmp_path / "output.log").read_text()
    assert text.count("dyntrain: CloudWatch does not take the output") == 1
