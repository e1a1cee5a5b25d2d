"""Notices in which AWS announces that an instance may or will be taken away. Nodes read these notices, and the
controller receives the notices as events. Pure.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# EC2 takes a Spot instance two minutes after the notice. A notice may directly follow a rebalance recommendation.
NOTICE_SECONDS = 120.0  # from the notice to the end of the instance
RECOMMENDED = "rebalance"  # the kind of a rebalance recommendation
GROUP_ENDS = "autoscaling-terminated"  # the node's Auto Scaling group terminates the node


@dataclass(frozen=True)
class Rebalance:  # reaction to a rebalance recommendation
    """What a node does after a rebalance recommendation, in which EC2 advises to leave the instance. After a rebalance
    recommendation, EC2 may still leave the instance running for hours.
    """

    choice: Literal["leave", "ignore"] = "leave"  # leave: the node leaves after the grace period
    grace_seconds: float = NOTICE_SECONDS  # time to stay after a recommendation

    def deadline(self, kind: str, notice_deadline: float) -> float | None:
        """The time by which a node must leave after a notice of this kind. Returns None if the node stays. AWS sets no
        deadline for a rebalance recommendation, so the deadline is the time of the recommendation plus the policy's
        grace period.
        """
        if kind != RECOMMENDED:
            return notice_deadline
        return None if self.choice == "ignore" else notice_deadline - NOTICE_SECONDS + self.grace_seconds


LEAVE_ON_RECOMMENDATION = Rebalance()
