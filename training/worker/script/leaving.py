"""A script has left the loop over its epochs before its end: by `break`, or by an error that is on its way up.

The loop cannot see which: while an error unwinds, the generator is closed just as after `break`. So the connection
stays for a moment, in which an error comes to the interpreter's hook and is told to the coordinator. A script that goes
on after the loop is a lost worker.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading

from dyntrain.training.worker.membership.membership import Membership

log = logging.getLogger(__name__)
UNWINDING = 10.0  # seconds for an error's way up, through a script's own clean-up, on a machine that is busy
LEFT = (
    "the loop over job.epochs() was left before its end: this worker counts as lost and is started again. To end the "
    "job early, call job.stop() and go on"
)


def close_soon(membership: Membership, seconds: float = UNWINDING) -> None:
    """At the process' end at the latest: after that nothing may be in flight."""
    if sys.is_finalizing():  # no thread can begin any more: to wait for one would be for ever
        membership.close()
        return
    timer = threading.Timer(seconds, _close, (membership,))
    timer.daemon = True
    timer.start()
    atexit.register(membership.close)


def _close(membership: Membership) -> None:
    raised = membership.told_failure or getattr(sys, "last_value", None) is not None  # the latter where a person types
    if not raised:
        log.error(LEFT)
    membership.close()
