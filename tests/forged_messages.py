"""What strangers and broken nodes may send over the control channel: noise, and true messages with anything changed in
them.
"""

from __future__ import annotations

import json
from typing import Any

from dyntrain.training.protocol.messages import (
    Broken,
    CheckIn,
    CommitFailed,
    Committed,
    CommitUnreadable,
    Entered,
    Fetching,
    FirstStep,
    Formed,
    Left,
    Position,
    Prepared,
    Progress,
    Pumped,
    ScriptEnded,
    ScriptFailed,
    StepStatus,
    Whereabouts,
    WorkerHello,
)
from dyntrain.training.protocol.node_messages import (
    EndRequest,
    GroupFailed,
    GroupReady,
    Launch,
    LaunchRequest,
    NodeHello,
    NodeNotice,
    WorkerExited,
    WorkerStarted,
)
from dyntrain.training.protocol.wire import FromNode, FromWorker
from hypothesis import strategies as st

NODE, OTHER, ADDRESS = "i-0123456789abcdef0", "i-0fedcba9876543210", "10.0.0.7"
AT = Position(epoch=0, offset=0, step=0)


def hello(**changes: Any) -> NodeHello:
    return NodeHello(
        **{"cluster": "demo", "instance_id": NODE, "private_ip": ADDRESS, "attempt": 1, "base": True, **changes}
    )


def worker_hello(**changes: Any) -> WorkerHello:
    fields = {"cluster": "demo", "instance_id": NODE, "private_ip": ADDRESS, "pid": 7, "state_port": 9}
    return WorkerHello(**{**fields, "epochs": 1, "samples": 1, "global_batch": 1, "seed": 1, "layout": "x", **changes})


OF_NODES: list[FromNode] = [
    GroupReady(scheduler_port=9000, blanks=2),
    GroupFailed(generation=1, reason="x"),
    WorkerStarted(pid=7),
    WorkerExited(pid=7, code=1, reason="x"),
    NodeNotice(kind="spot", deadline=2e9),
    LaunchRequest(launch=Launch(request="r", command=("python", "train.py"), directory="/volume")),
    EndRequest(request="r"),
]
OF_WORKERS: list[FromWorker] = [
    CheckIn(generation=1, position=AT, pid=7),
    Formed(generation=1, digest="x"),
    Left(generation=1),
    FirstStep(generation=1),
    Committed(generation=1, position=AT, name="c"),
    CommitFailed(generation=1, position=AT, reason="x"),
    CommitUnreadable(generation=1, name="c", reason="x"),
    Prepared(generation=1),
    Fetching(generation=1, received=0, size=1),
    Progress(generation=1, position=AT, samples_per_second=1.0),
    ScriptFailed(generation=1, position=AT, error="x", traceback="x"),
    Entered(generation=1, epochs=1, samples=1, global_batch=1, seed=1, layout="x", loop=1),
    ScriptEnded(generation=1),
    StepStatus(generation=1, phase="out", position=AT, answered=0),
    Whereabouts(generation=1, waits=True, position=AT),
    Pumped(generation=1, rounds=1, seconds=0.1),
    Broken(generation=1, reason="closed"),
]
MESSAGES = [hello(), worker_hello(), *OF_NODES, *OF_WORKERS]

NUMBERS = st.integers(-3, 3) | st.integers() | st.floats() | st.just(10**400)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=8), lambda inner: st.lists(inner, max_size=4), max_leaves=8
)
NOISE = st.text() | st.binary()


@st.composite
def changed(draw: st.DrawFn, message: Any) -> str:
    """JSON of `message` with any fields replaced, added or taken away, or cut short."""
    fields = json.loads(message.model_dump_json())
    for name in draw(st.lists(st.sampled_from(sorted(fields)), max_size=4)):
        fields[name] = draw(JSON)
    for name in draw(st.lists(st.sampled_from(sorted(fields)), max_size=1)):
        del fields[name]
    text = json.dumps(fields)
    return text[: draw(st.integers(1, len(text)))] if draw(st.integers(0, 9)) == 0 else text


def twisted(message: Any) -> st.SearchStrategy[str]:
    """JSON of `message` with other values of the same kind: most of it is understood, little of it makes sense."""

    def other(value: Any) -> st.SearchStrategy[Any]:
        if isinstance(value, dict):
            return st.fixed_dictionaries(
                {name: st.just(entry) if name in ("type", "phase") else other(entry) for name, entry in value.items()}
            )
        if isinstance(value, bool) or value is None:
            return st.just(value)
        if isinstance(value, int):
            return st.just(value) | st.integers(0, 3) | st.integers(0, 10**400)
        if isinstance(value, float):
            return st.just(value) | st.floats()
        return st.just(value) | st.text(max_size=8)

    return other(json.loads(message.model_dump_json())).map(json.dumps)


CHANGED = st.sampled_from(MESSAGES).flatmap(changed)
