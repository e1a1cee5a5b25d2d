"""What the coordinator announces, as a person reads it in the terminal of a launch, of `local up` and of the demo."""

from __future__ import annotations

import re
from typing import Any, get_args, get_origin

import pytest
from dyntrain.training import events
from dyntrain.training.coordinator.progress import describe
from dyntrain.training.protocol.messages import Position
from pydantic import BaseModel

KINDS = [
    kind for kind in vars(events).values() if isinstance(kind, type) and "event" in getattr(kind, "model_fields", {})
]
MEASURED, AT = 5.283308982849121, Position(epoch=1, offset=0, step=2)


def any_value(wanted: Any) -> Any:
    """Of a field's type: numbers as clocks give them."""
    if get_origin(wanted) is not None or not isinstance(wanted, type):
        choices = [one for one in get_args(wanted) if one is not type(None)]
        if get_origin(wanted) is dict:
            return {"part": MEASURED}
        if get_origin(wanted) in (tuple, list, frozenset):
            return ()
        return any_value(choices[0]) if choices and isinstance(choices[0], type) else choices[0] if choices else "words"
    if issubclass(wanted, BaseModel):
        return AT if wanted is Position else wanted.model_construct()
    return {float: MEASURED, int: 3, bool: True}.get(wanted, "words")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_no_line_for_people_has_a_number_of_sixteen_digits(kind: Any) -> None:
    values = {name: any_value(field.annotation) for name, field in kind.model_fields.items() if name != "event"}
    line = describe(kind.model_construct(**values))
    assert not re.search(r"\d\.\d{5,}|[{}\[\]]", line), line


def test_a_worker_is_called_a_spare_only_if_it_is_one_and_a_deadline_is_a_time_of_day() -> None:
    instance = "i-0000000000000000a"
    ready = events.WorkerReady(instance=instance, pid=7, seconds=MEASURED, spare=False, at=1.0)
    assert describe(ready) == f"worker ready: instance {instance}, pid 7, seconds 5.3"
    assert describe(ready.model_copy(update={"spare": True})).endswith("seconds 5.3, spare")
    notice = events.NodeNotice(instance=instance, kind="spot", deadline=1795845128.6762779, at=1.0)
    assert describe(notice) == f"node notice: instance {instance}, kind spot, deadline 2026-11-28 05:52:08Z"
