"""Notices that a machine may or will be taken, as the node that reads them and the controller that hears of them
understand them alike. Pure.

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
    """What a cluster makes of a rebalance recommendation, after which EC2 may leave the machine for hours."""

    choice: Literal["leave", "ignore"] = "leave"
    grace_seconds: float = NOTICE_SECONDS

    def deadline(self, kind: str, noted: float) -> float | None:
        """By when the machine is left on a notice of that kind; None: it stays. A recommendation has no deadline of
        AWS's: it is noted with NOTICE_SECONDS, and the policy knows better.
        """
        if kind != RECOMMENDED:
            return noted
        return None if self.choice == "ignore" else noted - NOTICE_SECONDS + self.grace_seconds


LEAVE = Rebalance()
