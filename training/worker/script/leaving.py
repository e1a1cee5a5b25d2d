"""Handle a script that leaves its loop over epochs early, by `break` or by an error.

An error in the script closes the loop's generator just as `break` does, so the loop cannot distinguish an error from
`break`. The connection to the coordinator therefore stays open for some seconds after the script has left the loop.
While the connection is open, an error in the script reaches Python's `excepthook`, which reports the error to the
coordinator. A script that continues after leaving its loop early counts as a lost worker.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading

from dyntrain.training.worker.membership.membership import Membership

log = logging.getLogger(__name__)
UNWIND_SECONDS = 10.0  # seconds for an error to get through the script's own clean-up, on a busy machine
LEFT_EARLY_ERROR = (
    "the loop over job.epochs() was left before its end: this worker counts as lost and is started again. To end the "
    "job early, call job.stop() and go on"
)


def close_later(membership: Membership, seconds: float = UNWIND_SECONDS) -> None:
    """Close the connection to the coordinator after `seconds`, or earlier if the process ends earlier."""
    if sys.is_finalizing():  # no thread can start any more: starting the timer would never end
        membership.close()
        return
    timer = threading.Timer(seconds, _close, (membership,))
    timer.daemon = True
    timer.start()
    atexit.register(membership.close)


def _close(membership: Membership) -> None:
    has_failed = membership.failure_reported or getattr(sys, "last_value", None) is not None  # a REPL sets last_value
    if not has_failed:
        log.error(LEFT_EARLY_ERROR)
    membership.close()
