"""Disturb the cloud on request: lose, double and delay events, throttle calls, and make describe calls lag more. Each
kind of disturbance is counted.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from dyntrain.controller.local.calls import Call
from dyntrain.controller.local.errors import ApiError

# AWS's codes and wordings, from the services' pages "Common Errors" and
# https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
THROTTLED = {
    "ec2": ApiError("RequestLimitExceeded", "Request limit exceeded.", 503),
    "autoscaling": ApiError("Throttling", "Rate exceeded"),
    "ssm": ApiError("ThrottlingException", "Rate exceeded"),
    "dynamodb": ApiError("ThrottlingException", "Rate of requests exceeds the allowed throughput."),
    "events": ApiError("ThrottlingException", "Rate exceeded"),
}


@dataclass(frozen=True)
class Disorder:
    """The amount of disturbance. `lost`, `doubled` and `late` are fractions of an event's deliveries. A late delivery,
    or the second of two deliveries, comes up to `late_seconds` later.
    """

    lost: float = 0.0
    doubled: float = 0.0
    late: float = 0.0
    late_seconds: float = 5.0
    behind_seconds: float = 0.0  # the greatest extra age of a describe call's answer; random for each call
    throttled: Mapping[str, float] = field(default_factory=dict)  # fraction of a service's calls, by signing name


class Disturbance:
    """The present disturbance. Thread-safe. The default `Disorder` disturbs nothing."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._ages = random.Random(f"ages {seed}")
        self._lock = threading.Lock()
        self.disorder = Disorder()
        self.counts: Counter[str] = Counter()

    def set(self, disorder: Disorder) -> None:
        with self._lock:
            self.disorder = disorder

    def delays(self, usual_delays: list[float], losable: bool) -> list[float]:
        """The delays of an event's deliveries, in place of `usual_delays`; empty for a lost event. Scheduled events are
        not `losable`, because AWS delivers them at least once.
        """
        with self._lock:
            disorder = self.disorder
            if losable and self._happens("event lost", disorder.lost):
                return []
            delays = [
                delay + self._chance.uniform(0, disorder.late_seconds)
                if self._happens("event late", disorder.late)
                else delay
                for delay in usual_delays
            ]
            if self._happens("event doubled", disorder.doubled):
                delays.append(self._chance.uniform(0, disorder.late_seconds))
            return delays

    def age(self) -> float:
        """The extra age of a describe call's answer, in seconds."""
        with self._lock:
            return self._ages.uniform(0.0, self.disorder.behind_seconds)

    def check(self, call: Call) -> None:
        """Raise ApiError when the call is throttled."""
        with self._lock:
            if self._happens(f"throttled {call.service}", self.disorder.throttled.get(call.service, 0.0)):
                raise THROTTLED[call.service]

    def _happens(self, kind: str, fraction: float) -> bool:
        happens = fraction > 0 and self._chance.random() < fraction
        if happens:
            self.counts[kind] += 1
        return happens
