"""Notices that EC2 may or will take an instance, as nodes read them and the controller receives them. Pure.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# EC2 takes a Spot instance two minutes after the notice. A notice may directly follow a rebalance recommendation.
NOTICE_SECONDS = 120.0
RECOMMENDED = "rebalance"
GROUP_ENDS = "autoscaling-terminated"  # the node's Auto Scaling group terminates the node


@dataclass(frozen=True)
class Rebalance:
    """How a cluster reacts to a rebalance recommendation. EC2 may leave the instance running for hours after a
    recommendation.
    """

    choice: Literal["leave", "ignore"] = "leave"
    grace_seconds: float = NOTICE_SECONDS

    def deadline(self, kind: str, notice_deadline: float) -> float | None:
        """When a node leaves after a notice of this kind; None: the node stays. AWS sets no deadline for a
        recommendation. The notice of a recommendation carries a deadline NOTICE_SECONDS later, which the policy's grace
        period replaces.
        """
        if kind != RECOMMENDED:
            return notice_deadline
        return None if self.choice == "ignore" else notice_deadline - NOTICE_SECONDS + self.grace_seconds


LEAVE_ON_RECOMMENDATION = Rebalance()
