"""The rules' patterns as LocalStack's matcher reads them: it is written by others than moto's and ours, and compared
with AWS's answers by its authors. Two of the three agreeing on a mistake would otherwise go unseen.
"""

from __future__ import annotations

import itertools
from typing import Any

from asking import judge
from dyntrain.controller.contract.elastic_tag import ELASTIC_TAG
from dyntrain.controller.core.incoming.event_rules import event_patterns, matches
from dyntrain.controller.local.lambdas.rules import matches_pattern as as_moto_does

PATTERNS = event_patterns(ELASTIC_TAG)
SOURCES = [*(p["source"][0] for p in PATTERNS.values()), "dyntrain.node.demo", "dyntrain.nodes", "aws.EC2"]
DETAILS: list[Any] = [
    {},
    {"service": "ec2", "resource-type": "instance", "changed-tag-keys": ["Name", ELASTIC_TAG.of("demo")]},
    {"service": "ec2", "resource-type": "instance", "changed-tag-keys": ["Name"]},
    {"service": "ec2", "resource-type": "instance", "changed-tag-keys": []},
    {"service": "ec2", "resource-type": "volume", "changed-tag-keys": [ELASTIC_TAG.of("demo")]},
    {"service": ["ec2"], "resource-type": "instance", "changed-tag-keys": ELASTIC_TAG.of("demo")},
    {"service": "EC2", "eventTypeCategory": "scheduledChange"},
    {"service": "EC2", "eventTypeCategory": "issue"},
    {"service": None, "eventTypeCategory": ["scheduledChange", "issue"]},
    {"state": "pending", "instance-id": "i-0123456789abcdef0"},
    {"state": "running"},
    {"state": 7},
]


def events() -> list[dict[str, Any]]:
    kinds = ["Other", *dict.fromkeys(pattern["detail-type"][-1] for pattern in PATTERNS.values() if len(pattern) > 1)]
    return [
        {"version": "0", "source": source, "detail-type": kind, "detail": detail}
        for source, kind, detail in itertools.product(dict.fromkeys(SOURCES), kinds, DETAILS)
    ]


def test_three_matchers_hand_every_event_to_the_same_handlers() -> None:
    pairs = [(handler, event) for handler in PATTERNS for event in events()]
    theirs = judge("judge_patterns.py", [(PATTERNS[handler], event) for handler, event in pairs])
    differing = [
        (handler, event)
        for (handler, event), verdict in zip(pairs, theirs, strict=True)
        if not verdict == matches(PATTERNS[handler], event) == as_moto_does(dict(PATTERNS[handler]), event)
    ]
    assert differing == []
    assert {handler for (handler, _), verdict in zip(pairs, theirs, strict=True) if verdict} == set(PATTERNS)
