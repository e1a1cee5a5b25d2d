"""How often in a row it went wrong, so that a job that cannot go on ends with a reason instead of trying for ever.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

FORMATIONS = 10  # generations in a row that were not formed
RESTARTS = 20  # restarts in a row that got no further
DIVERGENCES = 3  # times that the workers' states differed
AT_ONCE = 3  # tries that follow each other without a pause
LONGEST = 30.0
NUMBER = re.compile(r"\d+(\.\d+)?")  # in an error's words: shapes and sizes of a share are each worker's own


@dataclass
class Trouble:
    formations: int = 0
    restarts: int = 0
    divergences: int = 0
    furthest: int = 0  # step
    until: float = 0.0  # no generation is formed before
    raised: dict[str, tuple[int, str]] = field(default_factory=dict)  # (step, error) of this generation's members
    alike: tuple[int, str] | None = None  # what all members of an earlier generation raised, at which step

    def script_raised(self, instance: str, step: int, error: str, members: Collection[str]) -> bool:
        """Whether all members have raised the same, but for numbers in it, at the same step, for the second time: no
        other try will help.
        """
        self.raised[instance] = (step, NUMBER.sub("#", error))
        if set(self.raised) < set(members) or len(set(self.raised.values())) > 1:
            return False
        again, self.alike = self.alike == self.raised[instance], self.raised[instance]
        return again

    def was_told(self, step: int, error: str) -> bool:
        """Of an error that may be this one."""
        return bool(self.raised) or self.alike == (step, NUMBER.sub("#", error))

    def not_formed(self, now: float) -> str | None:
        """One more formation came to nothing. The reason to give up, or None."""
        self.formations += 1
        self.until = now + pause(self.formations)
        return f"{self.formations} generations in a row could not be formed" if self.formations >= FORMATIONS else None

    def restarted(self, now: float) -> str | None:
        """One more restart. The reason to give up, or None."""
        self.restarts += 1
        self.until = max(self.until, now + pause(self.restarts))
        return (
            f"{self.restarts} restarts in a row, none of which got any further" if self.restarts >= RESTARTS else None
        )

    def diverged(self) -> bool:
        """The workers' states differ. Whether that is once too often: it does not come by accident."""
        self.divergences += 1
        return self.divergences > DIVERGENCES

    def formed(self) -> None:
        self.formations, self.raised = 0, {}

    def got_to(self, step: int) -> None:
        """What was trained up to there is safe outside the workers."""
        if step > self.furthest:
            self.furthest, self.restarts, self.divergences = step, 0, 0


def pause(failures: int) -> float:
    """Seconds before the next try: none at first, then doubling."""
    return 0.0 if failures <= AT_ONCE else float(min(LONGEST, 2.0 ** (failures - AT_ONCE)))
