"""Handle a script that leaves the loop over its epochs early: by `break`, or by an error that is being raised.

The loop cannot tell which: an error closes the generator just as `break` does. So the connection stays open for a
moment, in which an error reaches the interpreter's hook and the coordinator is told. A script that goes on after the
loop is a lost worker.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading

from dyntrain.training.worker.membership.membership import Membership

log = logging.getLogger(__name__)
UNWINDING = 10.0  # seconds for an error to get through the script's own clean-up, on a busy machine
LEFT = (
    "the loop over job.epochs() was left before its end: this worker counts as lost and is started again. To end the "
    "job early, call job.stop() and go on"
)


def close_soon(membership: Membership, seconds: float = UNWINDING) -> None:
    """Close the connection after `seconds`, at the latest when the process ends: nothing may be in
    flight after that.
    """
    if sys.is_finalizing():  # no thread can start any more: waiting for one would never end
        membership.close()
        return
    timer = threading.Timer(seconds, _close, (membership,))
    timer.daemon = True
    timer.start()
    atexit.register(membership.close)


def _close(membership: Membership) -> None:
    raised = membership.failure_reported or getattr(sys, "last_value", None) is not None  # the latter in a REPL
    if not raised:
        log.error(LEFT)
    membership.close()
