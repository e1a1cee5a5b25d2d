"""The program on one host of the model's benchmark, in a network namespace of its own: only exchanges, no computation.

model_member.py servers              forks one of the engine's processes for each line of JSON, and ends them when its
                                     input ends
model_member.py worker HOST ENGINE   obeys lines of JSON, and answers each with one
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, cast

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
from dyntrain.training.host.exec_child import die_with_parent
from dyntrain.training.protocol.engines import EngineName

import mxnet as mx  # isort: skip

LAYER = 20  # keys whose gradients become ready at the same time
Key = tuple[str, tuple[int, ...], str]


def say(**words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def orders() -> Any:
    for line in sys.stdin:
        yield json.loads(line)


def servers() -> None:
    """Fork blank processes that become servers or schedulers. Importing MXNet first is safe, as it starts no thread."""
    from dyntrain.training.engine.blank import become

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    say(ready=True)
    started: list[int] = []
    for order in orders():
        if order["do"] == "stop":
            for process in started:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            started.clear()
            say(stopped=True)
            continue
        parent, process = os.getpid(), os.fork()
        if process == 0:
            die_with_parent(parent)
            become(order["role"], order["environment"])
            os._exit(0)
        started.append(process)
        say(started=process)


class Layer(mx.operator.CustomOp):  # type: ignore[misc]  # mxnet has no types
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        time.sleep(self._seconds)
        self.assign(out_data[0], req[0], in_data[0])


@mx.operator.register("layer")
class LayerProperties(mx.operator.CustomOpProp):  # type: ignore[misc]
    def __init__(self, seconds: str) -> None:
        super().__init__(need_top_grad=False)
        self._seconds = float(seconds)

    def create_operator(self, ctx: Any, shapes: Any, dtypes: Any) -> Layer:
        return Layer(self._seconds)


class Worker:
    """A worker with the project's own engine and step guard, and gradients that are not computed."""

    def __init__(self, host: str, engine: EngineName) -> None:
        from dyntrain.training.engine import make_engine
        from dyntrain.training.protocol.messages import Position
        from dyntrain.training.worker.membership.step import StepGuard

        self._heard: list[Any] = []
        self._changed = threading.Condition()
        self._engine = make_engine(engine, "dist_sync", host)
        self._guard = StepGuard(self._engine, self._hear)
        self._start = Position(epoch=0, offset=0, step=0)
        self._thread: threading.Thread | None = None
        self._freed = 0.0

    def _hear(self, message: Any) -> None:
        with self._changed:
            self._heard.append(message)
            self._changed.notify_all()

    def _answer(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._heard))
            return self._heard.pop(0)

    def form(self, environment: dict[str, str], keys: Sequence[Key], generation: int) -> dict[str, Any]:
        seconds = self._engine.form(environment, [(name, tuple(shape), dtype) for name, shape, dtype in keys])
        self._arrays = [mx.nd.ones(tuple(shape), dtype=dtype) for _, shape, dtype in keys]
        self._names = [name for name, _, _ in keys]
        mx.nd.waitall()
        self._guard.formed(generation, self._start)
        return dict(seconds)

    def _exchange(self) -> float:
        began = time.monotonic()

        def push() -> None:
            for number, (name, array) in enumerate(zip(self._names, self._arrays, strict=True)):
                self._engine.kvstore.pushpull(name, array, priority=-number)

        self._guard.exchange(range(len(self._names)), push, self._arrays)
        return time.monotonic() - began

    def exchange(self, times: int, backward: float) -> dict[str, Any]:
        seconds = []
        for _ in range(times):
            self._go_backward(backward)
            seconds.append(self._exchange())
            self._guard.apply(self._start, lambda: None)
        return {"seconds": seconds}

    def _go_backward(self, seconds: float) -> None:
        """Simulate a GPU's backward pass of `seconds`, with the last layers' gradients first and no processor load."""
        if not seconds:
            return
        done = mx.nd.ones((1,))
        shares = [self._arrays[at : at + LAYER] for at in range(0, len(self._arrays), LAYER)]
        for arrays in reversed(shares):
            done = mx.nd.Custom(done, op_type="layer", seconds=str(seconds / len(shares)))
            for array in arrays:
                array[:] = done.broadcast_to(array.shape)

    def begin(self) -> dict[str, Any]:
        """Begin an exchange that does not end by itself, because a worker is gone."""

        def work() -> None:
            self._exchange()
            self._freed = time.monotonic()

        self._thread = threading.Thread(target=work, daemon=True)
        self._thread.start()
        return {"begun": True}

    def abort(self, generation: int) -> dict[str, Any]:
        from dyntrain.training.protocol.messages import Abort

        self._guard.handle(Abort(generation=generation))
        return {"phase": self._answer().phase}

    def pump(self, generation: int, count: int, share: int, shares: int) -> dict[str, Any]:
        from dyntrain.training.protocol.messages import Pump

        began = time.monotonic()
        self._guard.handle(Pump(generation=generation, count=count, share=share, shares=shares))
        pumped = self._answer()
        return {"began": began, "rounds": pumped.rounds, "seconds": pumped.seconds}

    def freed(self) -> dict[str, Any]:
        assert self._thread is not None
        self._thread.join()
        return {"at": self._freed}

    def dissolve(self) -> dict[str, Any]:
        self._engine.dissolve()
        return {"left": True}


def main(arguments: Sequence[str]) -> None:
    if arguments[0] == "servers":
        servers()
        return
    worker = Worker(arguments[1], cast(EngineName, arguments[2]))
    say(ready=True)
    for order in orders():
        say(**getattr(worker, order.pop("do"))(**order))
    os._exit(0)


if __name__ == "__main__":
    die_with_parent(os.getppid())
    main(sys.argv[1:])
