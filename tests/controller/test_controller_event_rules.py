"""What `dyntrain replay` asks of recorded events is what EventBridge is asked: app.py declares the same patterns, and
moto's implementation of their language finds the same events.
"""

from __future__ import annotations

from typing import Any

import pytest
from chalice.app import CloudWatchEventConfig
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.core.incoming.event_rules import event_patterns, matches, matching_handlers
from dyntrain.controller.local.lambdas.rules import matches_pattern as as_moto_does
from hypothesis import given, settings
from hypothesis import strategies as st

import app

PATTERNS = event_patterns(ELASTIC_TAG)
DETAIL_TYPES = sorted({kind for pattern in PATTERNS.values() for kind in pattern.get("detail-type", ["?"])})
WORDS = st.sampled_from(
    ["ec2", "EC2", "instance", "scheduledChange", "pending", ELASTIC_TAG.of("demo"), ELASTIC_TAG.suffix, ""]
)
VALUES = st.one_of(WORDS, st.lists(WORDS, max_size=3), st.none(), st.integers(0, 1), st.booleans())
DETAILS = st.dictionaries(
    st.sampled_from(["service", "resource-type", "changed-tag-keys", "eventTypeCategory", "state", "other"]), VALUES
)
EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "source": st.sampled_from(sorted({pattern["source"][0] for pattern in PATTERNS.values()})),
        "detail-type": st.sampled_from(DETAIL_TYPES),
        "detail": DETAILS,
        "account": st.just("444455556666"),
    },
)


def test_app_declares_these_patterns_for_these_handlers_and_no_others() -> None:
    declared = {
        source.name: source.event_pattern
        for source in app.app.event_sources
        if isinstance(source, CloudWatchEventConfig)
    }
    assert declared == event_patterns(app.wiring.settings().elastic)


@settings(max_examples=300, deadline=None)
@given(event=EVENTS)
def test_an_event_goes_where_motos_event_bridge_would_send_it(event: dict[str, Any]) -> None:
    assert matching_handlers(ELASTIC_TAG, event) == [
        handler for handler, pattern in PATTERNS.items() if as_moto_does(dict(pattern), event)
    ]


def test_each_rule_has_an_event_that_it_matches() -> None:
    for handler, pattern in PATTERNS.items():
        event = {name: value[0] for name, value in pattern.items() if name != "detail"}
        first = {name: value[0] for name, value in pattern.get("detail", {}).items()}
        event["detail"] = {
            name: [f"demo{value['suffix']}", "Name"] if isinstance(value, dict) else value
            for name, value in first.items()
        }
        assert handler in matching_handlers(ELASTIC_TAG, event)
        assert as_moto_does(dict(pattern), event)


@pytest.mark.parametrize("detail", [None, [], "text", 7])
def test_a_detail_that_is_no_object_matches_nothing_that_asks_for_one(detail: Any) -> None:
    assert (
        matching_handlers(ELASTIC_TAG, {"source": "aws.tag", "detail-type": "Tag Change on Resource", "detail": detail})
        == []
    )


def test_an_operator_that_no_rule_uses_is_not_taken_for_a_mismatch() -> None:
    with pytest.raises(NotImplementedError, match="exists"):
        matches({"source": [{"exists": True}]}, {"source": "aws.ec2"})
