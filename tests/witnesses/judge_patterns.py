"""LocalStack's matcher of EventBridge patterns: for each (pattern, event) whether it matches. Runs in the witnesses'
own environment.
"""

from __future__ import annotations

import json
import sys
import types
from functools import cache

# All that the matcher wants of the rest, whose own dependencies are a hundred packages.
api = types.ModuleType("localstack.aws.api.events")
api.InvalidEventPatternException = type("InvalidEventPatternException", (Exception,), {})  # type: ignore[attr-defined]
sys.modules[api.__name__] = api

from localstack.services.events.event_rule_engine import EventPatternCompiler, EventRuleEngine  # noqa: E402

compiled = cache(EventPatternCompiler().compile_event_pattern)
matches = EventRuleEngine().evaluate_pattern_on_event
verdicts = [matches(compiled(json.dumps(pattern)), json.dumps(event)) for pattern, event in json.load(sys.stdin)]
sys.stdout.write(json.dumps(verdicts))
