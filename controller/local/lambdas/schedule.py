"""Run scheduled rules. Each rule delivers an event (Scheduled Event) to the rule's handler once in each period. The
first event comes one period after the start of the embedded cloud.
"""

from __future__ import annotations

from dyntrain.controller.local import events
from dyntrain.controller.local.account import Account
from dyntrain.controller.local.agenda import Agenda
from dyntrain.controller.local.lambdas.bus import EventBus
from dyntrain.controller.local.lambdas.rules import EventRules, ScheduleRule
from dyntrain.controller.local.options import Options


class RuleSchedule:
    def __init__(self, account: Account, agenda: Agenda, bus: EventBus, options: Options) -> None:
        self._account = account
        self._agenda = agenda
        self._bus = bus
        self._scale = options.schedule_scale

    def start(self, rules: EventRules) -> None:
        for rule in rules.schedules:
            self._schedule_next(rule)

    def run_now(self, function: str) -> None:
        """Run the scheduled rule of `function` now, in addition to its schedule."""
        rule_arn = self._account.arn("events", f"rule/{function}")
        self._bus.deliver(function, events.scheduled_event(self._bus.origin(), rule_arn), losable=False)

    def _schedule_next(self, rule: ScheduleRule) -> None:
        def run_rule() -> None:
            self._schedule_next(rule)
            self.run_now(rule.function)

        self._agenda.run_after(rule.period * self._scale, run_rule)
