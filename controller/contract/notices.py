"""Notices that EC2 may or will take a machine, as nodes read and the controller receives them. Pure. Pure.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# a Spot machine is taken two minutes after its notice, and a rebalance recommendation may be followed by one at once
NOTICE_SECONDS = 120.0
RECOMMENDED = "rebalance"
GROUP_ENDS = "autoscaling-terminated"  # the node's Auto Scaling group does


@dataclass(frozen=True)
class Rebalance:
    """How a cluster reacts to a rebalance recommendation, after which EC2 may still leave the machine for hours."""

    choice: Literal["leave", "ignore"] = "leave"
    grace_seconds: float = NOTICE_SECONDS

    def deadline(self, kind: str, notice_deadline: float) -> float | None:
        """When to leave the machine after a notice of that kind; None: it stays. AWS sets no deadline for a
        recommendation: the notice carries NOTICE_SECONDS, and the policy decides.
        """
        if kind != RECOMMENDED:
            return notice_deadline
        return None if self.choice == "ignore" else notice_deadline - NOTICE_SECONDS + self.grace_seconds


LEAVE_ON_RECOMMENDATION = Rebalance()
