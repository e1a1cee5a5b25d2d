"""How often in a row it went wrong, so that a job that cannot go on ends with a reason instead of trying for ever. Pure."""

from __future__ import annotations

from dataclasses import dataclass

FORMATIONS = 10  # generations in a row that were not formed
RESTARTS = 20  # restarts in a row that got no further
AT_ONCE = 3  # tries that follow each other without a pause
LONGEST = 30.0


@dataclass
class Trouble:
    formations: int = 0
    restarts: int = 0
    furthest: int = 0  # step
    until: float = 0.0  # no generation is formed before

    def not_formed(self, now: float) -> str | None:
        """One more formation came to nothing. The reason to give up, or None."""
        self.formations += 1
        self.until = now + pause(self.formations)
        return f"{self.formations} generations in a row could not be formed" if self.formations >= FORMATIONS else None

    def restarted(self, now: float) -> str | None:
        """One more restart. The reason to give up, or None."""
        self.restarts += 1
        self.until = max(self.until, now + pause(self.restarts))
        return f"{self.restarts} restarts in a row, none of which got any further" if self.restarts >= RESTARTS else None

    def formed(self) -> None:
        self.formations = 0

    def got_to(self, step: int) -> None:
        """What was trained up to there is safe outside the workers."""
        if step > self.furthest:
            self.furthest, self.restarts = step, 0


def pause(failures: int) -> float:
    """Seconds before the next try: none at first, then doubling."""
    return 0.0 if failures <= AT_ONCE else float(min(LONGEST, 2.0 ** (failures - AT_ONCE)))
