"""The default event bus, which delivers each event to every handler with a matching rule. An event is delivered at
least once, and the order of events is not guaranteed.
"""

from __future__ import annotations

import random
import threading
import time
import uuid

from dyntrain.controller.local.account import Account
from dyntrain.controller.local.agenda import Agenda
from dyntrain.controller.local.disturbance import Disturbance
from dyntrain.controller.local.events import Event, EventOrigin
from dyntrain.controller.local.lambdas.functions import Lambdas
from dyntrain.controller.local.lambdas.rules import EventRules
from dyntrain.controller.local.options import Options
from dyntrain.controller.local.trace import CloudTrace


class EventBus:
    """The event bus. Each delivery of an event is randomly delayed, and a fraction of the deliveries is repeated, as
    EventBridge may do.
    """

    def __init__(
        self,
        account: Account,
        agenda: Agenda,
        trace: CloudTrace,
        lambdas: Lambdas,
        options: Options,
        disturbance: Disturbance,
    ) -> None:
        self._account = account
        self._agenda = agenda
        self._trace = trace
        self._lambdas = lambdas
        self._options = options
        self._disturbance = disturbance
        self._rules = EventRules((), (), ())
        self._random = random.Random(options.seed)
        self._lock = threading.Lock()

    def set_rules(self, rules: EventRules) -> None:
        self._rules = rules

    def origin(self) -> EventOrigin:
        """The `EventOrigin` (account, region, time and id) of an event that happens now."""
        return EventOrigin(self._account.number, self._account.region, time.time(), str(uuid.uuid4()))

    def publish(self, event: Event) -> None:
        target_functions = self._rules.target_functions(event)
        self._trace.write("event", event=event, targets=target_functions)
        for function in target_functions:
            self.deliver(function, event)

    def deliver(self, function: str, event: Event, *, losable: bool = True) -> None:
        with self._lock:
            usual_delays = [self._random.uniform(0, self._options.delivery_jitter)]
            if self._random.random() < self._options.duplicate_fraction:
                usual_delays.append(self._random.uniform(0, self._options.duplicate_delay))
        for delay_seconds in self._disturbance.delivery_delays(usual_delays, losable):
            self._agenda.run_after(delay_seconds, lambda: self._lambdas.invoke_async(function, event))
