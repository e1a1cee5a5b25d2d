"""What a worker says first on each connection to its coordinator, and what it says again: on lines in memory, of which
the test drops one and hands out the next.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from queue import Queue, SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from dyntrain.controller.contract.messages import ControlFile
from dyntrain.controller.local.pace import patient
from dyntrain.training.protocol.messages import (
    Abort,
    Challenge,
    CheckIn,
    Form,
    LoopTerms,
    Position,
    Prepared,
    Progress,
    SafeCopy,
    WorkerHello,
)
from dyntrain.training.protocol.wire import parse_to_coordinator
from dyntrain.training.worker.membership import client as module
from dyntrain.training.worker.membership.client import CONTROL_FILE_VARIABLE, CoordinatorClient, CoordinatorLost
from waiting import wait_for

AT = Position(epoch=1, offset=0, step=2)
WHO: dict[str, Any] = {"cluster": "c", "instance_id": "i-0000000a", "private_ip": "127.0.0.1"}
TERMS: dict[str, Any] = {"epochs": 1, "samples": 9, "global_batch": 3, "seed": 0, "layout": "x"}
CONTROL = ControlFile(**WHO, job="j", token="t", url="wss://first:1", certificate="", mount="/")
FORM = Form(
    generation=3,
    number=0,
    workers=1,
    environment={},
    position=AT,
    source="i-0000000a",
    transfer_token="the token of generation three",
)
PROGRESS = Progress(generation=3, position=AT, samples_per_second=1.0)


class Line:
    """One connection: `heard` is what the worker has said on it."""

    def __init__(self, url: str, broken: bool) -> None:
        self.url, self.broken = url, broken
        self.heard: Queue[Any] = Queue()
        self._orders: SimpleQueue[str | None] = SimpleQueue()

    def recv(self, seconds: float) -> str:
        return Challenge(nonce="f" * 32).model_dump_json()

    def send(self, text: str) -> None:
        self.heard.put(parse_to_coordinator(text))
        if self.broken and self.heard.qsize() > 1:
            raise OSError("the other side is gone")

    def __iter__(self) -> Iterator[str]:
        while (text := self._orders.get()) is not None:
            yield text
        raise OSError("dropped")

    def order(self, message: Any) -> None:
        self._orders.put(message.model_dump_json())

    def close(self) -> None:
        self._orders.put(None)

    def next(self) -> Any:
        return self.heard.get(timeout=patient(30))


class Bed:
    def __init__(self) -> None:
        self.lines: Queue[Line] = Queue()
        self.breaks = False
        self.urgent: list[Any] = []
        self.safe: SafeCopy | None = None

    @contextlib.contextmanager
    def connected(self, url: str, *given: Any) -> Iterator[Line]:
        line = Line(url, self.breaks)
        self.lines.put(line)
        yield line

    def line(self) -> tuple[Line, Any]:
        """The next connection, and the hello on it."""
        line = self.lines.get(timeout=patient(30))
        return line, line.next()


def refused(*given: Any) -> Any:
    raise OSError("nobody listens there")


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    bed = Bed()
    monkeypatch.setattr(module, "open_connection", bed.connected)
    monkeypatch.setattr(module, "spread", lambda *given: 0.001)
    monkeypatch.delenv(CONTROL_FILE_VARIABLE, raising=False)
    return bed


@pytest.fixture
def client(bed: Bed) -> Iterator[CoordinatorClient]:
    hello = WorkerHello(**WHO, **TERMS, pid=1, state_port=9)
    client = CoordinatorClient(CONTROL, hello, bed.urgent.append, end=lambda code: None, safe=lambda: bed.safe)
    yield client
    client.close()


def test_what_awaits_an_answer_is_said_again_after_the_hello_and_what_does_not_is_not(
    bed: Bed, client: CoordinatorClient
) -> None:
    line, hello = bed.line()
    assert hello.stage == "stands"
    line.order(FORM)
    assert client.next_order(patient(30)) == FORM
    client.say(Prepared(generation=3), awaits_answer=True)
    client.say(PROGRESS)
    assert [line.next() for _ in range(2)] == [Prepared(generation=3), PROGRESS]
    line.close()
    line, hello = bed.line()
    assert (hello.generation, hello.stage) == (3, "prepares")
    assert line.next() == Prepared(generation=3)
    client.say(later := PROGRESS.model_copy(update={"samples_per_second": 2.0}))
    assert line.next() == later, "and nothing between"


def test_a_script_that_has_come_to_another_loop_says_its_terms_on_every_later_connection(
    bed: Bed, client: CoordinatorClient
) -> None:
    """On those of the first loop it would be refused, or begin that one again."""
    line, hello = bed.line()
    assert (hello.loop, hello.epochs) == (0, 1)
    client.enter(LoopTerms(**{**TERMS, "epochs": 4, "loop": 1}), None)
    entered = line.next()
    assert (entered.type, entered.loop, entered.epochs, entered.generation) == ("entered", 1, 4, None)
    line.close()
    line, hello = bed.line()
    assert (hello.loop, hello.epochs) == (1, 4)
    assert line.next() == entered, "it was not answered"


def test_each_hello_has_the_newest_safe_state_and_goes_to_whom_the_control_file_names_then(
    bed: Bed, client: CoordinatorClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A coordinator that came back has another address and another token."""
    line, hello = bed.line()
    assert (line.url, hello.safe) == ("wss://first:1", None)
    bed.safe = SafeCopy(generation=3, position=AT, name="5f")
    file = tmp_path / "control.json"
    file.write_text(json.dumps({**json.loads(CONTROL.model_dump_json()), "url": "wss://second:2", "token": "another"}))
    monkeypatch.setenv(CONTROL_FILE_VARIABLE, str(file))
    line.close()
    line, second = bed.line()
    assert (line.url, second.safe) == ("wss://second:2", bed.safe)
    assert second.proof != hello.proof


def test_orders_that_cannot_wait_go_past_the_training_thread_and_no_others(bed: Bed, client: CoordinatorClient) -> None:
    line, _ = bed.line()
    line.order(FORM)
    line.order(Abort(generation=3))
    line.order(Abort(generation=2))
    line.order(FORM.model_copy(update={"generation": 4}))
    assert [client.next_order(patient(30)).generation for _ in range(2)] == [3, 4]
    assert bed.urgent == [Abort(generation=3)], "of another generation nobody is told"
    assert not client.has_order


def test_a_line_that_breaks_while_something_is_said_is_no_error_of_the_script(bed: Bed) -> None:
    bed.breaks = True
    hello = WorkerHello(**WHO, **TERMS, pid=1, state_port=9)
    client = CoordinatorClient(CONTROL, hello, bed.urgent.append, end=lambda code: None)
    try:
        line = bed.lines.get(timeout=patient(30))
        wait_for(lambda: client._connection is not None, 30)
        line.order(FORM)
        assert client.next_order(patient(30)) == FORM
        check_in = CheckIn(generation=3, position=AT, pid=1)
        client.say(check_in, awaits_answer=True)
        bed.breaks = False
        line.close()
        line, _ = bed.line()
        assert line.next() == check_in
    finally:
        client.close()


def test_without_a_line_only_what_awaits_an_answer_waits_for_the_next(
    bed: Bed, client: CoordinatorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, _ = bed.line()
    line.order(FORM)
    assert client.next_order(patient(30)) == FORM
    with monkeypatch.context() as down:
        down.setattr(module, "open_connection", refused)
        line.close()
        wait_for(lambda: client._connection is None, 30)
        client.say(PROGRESS)
        client.say(Prepared(generation=3), awaits_answer=True)
    line, _ = bed.line()
    assert line.next() == Prepared(generation=3)
    client.say(PROGRESS)
    assert line.next() == PROGRESS


def test_patience_begins_anew_with_each_connection_and_ends(
    bed: Bed, client: CoordinatorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job of days would end with its first dropped line."""
    now, patience = [1000.0], client._clocks.patience
    line, _ = bed.line()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    now[0] += 10 * patience
    line.close()
    line, _ = bed.line()
    now[0] += 10 * patience
    tried: Queue[None] = Queue()
    monkeypatch.setattr(module, "open_connection", lambda *given: refused(tried.put(None)))
    line.close()
    for _ in range(2):
        tried.get(timeout=patient(30))
    assert not client.has_order, "it looks for its coordinator as long as the clocks say"
    now[0] += patience + 1
    with pytest.raises(CoordinatorLost, match="the coordinator at wss://first:1 was unreachable"):
        client.next_order(patient(30))


def test_a_worker_that_waits_for_no_order_is_told_so_in_its_own_time(bed: Bed, client: CoordinatorClient) -> None:
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        client.next_order(0.01)


def test_a_client_that_is_closed_connects_no_more(bed: Bed, client: CoordinatorClient) -> None:
    bed.line()
    client.close()
    wait_for(lambda: client._connection is None, 30)
    assert bed.lines.empty()
