"""Disturb the embedded cloud on request: lose, double and delay events, throttle API calls, and make describe calls lag
more. The disturbances of each kind are counted.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from dyntrain.controller.local.calls import ApiCall
from dyntrain.controller.local.errors import ApiError

# AWS's codes and wordings, from the services' pages "Common Errors" and
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
THROTTLING_ERRORS = {
    "ec2": ApiError("RequestLimitExceeded", "Request limit exceeded.", 503),
    "autoscaling": ApiError("Throttling", "Rate exceeded"),
    "ssm": ApiError("ThrottlingException", "Rate exceeded"),
    "dynamodb": ApiError("ThrottlingException", "Rate of requests exceeds the allowed throughput."),
    "events": ApiError("ThrottlingException", "Rate exceeded"),
}


@dataclass(frozen=True)
class DisturbanceRates:
    """How often and for how long each kind of disturbance happens in the embedded cloud."""

    lost: float = 0.0  # fraction of the events that are not delivered
    doubled: float = 0.0  # fraction of the events that are delivered twice
    late: float = 0.0  # fraction of the deliveries that are delayed
    late_seconds: float = 5.0  # longest delay of a late delivery or of a second delivery
    behind_seconds: float = 0.0  # the greatest extra age of a describe call's answer; random for each call
    throttled: Mapping[str, float] = field(default_factory=dict)  # fraction of a service's calls, by signing name


class Disturbance:
    """The current disturbance of the embedded cloud; at first, nothing is disturbed. Thread-safe."""

    def __init__(self, seed: int) -> None:
        self._event_random = random.Random(seed)
        self._age_random = random.Random(f"ages {seed}")
        self._lock = threading.Lock()
        self.rates = DisturbanceRates()
        self.counts: Counter[str] = Counter()

    def set(self, rates: DisturbanceRates) -> None:
        with self._lock:
            self.rates = rates

    def delivery_delays(self, usual_delays: list[float], losable: bool) -> list[float]:
        """The delays, in seconds, after which an event is delivered, in place of `usual_delays`. The list is empty if
        the event is lost. `losable` is False for scheduled events, because AWS delivers scheduled events at least once.
        """
        with self._lock:
            current_rates = self.rates
            if losable and self._happens_by_chance("event lost", current_rates.lost):
                return []
            delivery_delays = [
                usual_delay + self._event_random.uniform(0, current_rates.late_seconds)
                if self._happens_by_chance("event late", current_rates.late)
                else usual_delay
                for usual_delay in usual_delays
            ]
            if self._happens_by_chance("event doubled", current_rates.doubled):
                delivery_delays.append(self._event_random.uniform(0, current_rates.late_seconds))
            return delivery_delays

    def extra_age_seconds(self) -> float:
        """A random number of seconds by which the answer to a describe call is older than usual."""
        with self._lock:
            return self._age_random.uniform(0.0, self.rates.behind_seconds)

    def raise_if_throttled(self, call: ApiCall) -> None:
        """Raise ApiError for a random fraction of the calls to a throttled service."""
        with self._lock:
            if self._happens_by_chance(f"throttled {call.service}", self.rates.throttled.get(call.service, 0.0)):
                raise THROTTLING_ERRORS[call.service]

    def _happens_by_chance(self, kind: str, fraction: float) -> bool:
        has_happened = fraction > 0 and self._event_random.random() < fraction
        if has_happened:
            self.counts[kind] += 1
        return has_happened
