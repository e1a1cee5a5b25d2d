"""Counts failures in a row, so that a job that cannot succeed ends with a reason instead of retrying for ever. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

FORMATIONS = 10  # limit of failed formations in a row
RESTARTS = 20  # limit of restarts in a row without progress
DIVERGENCES = 3  # limit of differences between the workers' states
ATTEMPTS_AT_ONCE = 3  # number of attempts without a pause
LONGEST_PAUSE = 30.0  # seconds of the longest pause between attempts
NUMBER_PATTERN = re.compile(r"\d+(\.\d+)?")  # numbers in error messages are ignored, as sizes differ between workers


@dataclass
class FailureCounts:
    formations: int = 0  # failed formations in a row
    restarts: int = 0  # restarts in a row without progress
    divergences: int = 0  # differences between the workers' states since the last progress
    furthest_step: int = 0  # last step that is stored outside the workers
    until: float = 0.0  # no generation is formed before this time
    errors: dict[str, tuple[int, str]] = field(default_factory=dict)  # (step, error) of this generation's members
    common_error: tuple[int, str] | None = None  # (step, error) that all members of an earlier generation raised

    def record_exception(self, instance: str, step: int, error: str, members: Collection[str]) -> bool:
        """Record the exception of a member's script; return whether a retry of the job is useless.

        A retry is useless if all members raised the same error at the same step a second time; numbers in errors are
        ignored.
        """
        self.errors[instance] = (step, NUMBER_PATTERN.sub("#", error))
        if set(self.errors) < set(members) or len(set(self.errors.values())) > 1:
            return False
        error_repeated, self.common_error = self.common_error == self.errors[instance], self.errors[instance]
        return error_repeated

    def was_announced(self, step: int, error: str) -> bool:
        """Whether `error`, raised at `step`, may already have been announced."""
        return bool(self.errors) or self.common_error == (step, NUMBER_PATTERN.sub("#", error))

    def count_failed_formation(self, now: float) -> str | None:
        """Count a failed formation; return the reason to give the job up, or None to try again."""
        self.formations += 1
        self.until = now + pause_seconds(self.formations)
        return f"{self.formations} generations in a row could not be formed" if self.formations >= FORMATIONS else None

    def count_restart(self, now: float) -> str | None:
        """Count a restart; return the reason to give the job up, or None to continue."""
        self.restarts += 1
        self.until = max(self.until, now + pause_seconds(self.restarts))
        return (
            f"{self.restarts} restarts in a row, none of which got any further" if self.restarts >= RESTARTS else None
        )

    def count_divergence(self) -> bool:
        """Count a difference between the workers' states; return whether there were too many differences."""
        self.divergences += 1
        return self.divergences > DIVERGENCES

    def reset_formations(self) -> None:
        self.formations, self.errors = 0, {}

    def record_safe_step(self, step: int) -> None:
        """Record that all steps up to `step` are stored outside the workers.

        If `step` is further than ever before, the counts of restarts and differences are reset.
        """
        if step > self.furthest_step:
            self.furthest_step, self.restarts, self.divergences = step, 0, 0


def pause_seconds(failures: int) -> float:
    """Return the seconds to wait before the next attempt.

    The result is 0 for the first failures, then doubles with each failure up to a limit.
    """
    return 0.0 if failures <= ATTEMPTS_AT_ONCE else float(min(LONGEST_PAUSE, 2.0 ** (failures - ATTEMPTS_AT_ONCE)))
