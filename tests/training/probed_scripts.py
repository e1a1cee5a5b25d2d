"""Scripts whose first batch is probed, one after another in a process of their own, which may fork: run by
`test_script_probe`. Each prints one line of JSON: its name, what it raised, and what was logged.
"""

from __future__ import annotations

import json
import logging
import sys

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import probed_alike  # noqa: F401
import probed_apart  # noqa: F401
import probed_untried  # noqa: F401
from dyntrain.training.checks import findings
from dyntrain.training.worker.loop import probe_driver
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.probe import child
from probed_bed import SCRIPTS


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


def main() -> None:
    Membership.probes = True
    probe_driver.PROBE_SECONDS = probe_driver.SOON_SECONDS = child.IDLE_SECONDS = (
        600  # no outcome hangs on how busy the machine is
    )
    heard = Heard()
    for log in (probe_driver.log, findings.log):
        log.addHandler(heard)
        log.setLevel(logging.INFO)
    for name in sys.argv[1:] or SCRIPTS:
        heard.messages, raised = [], None
        try:
            SCRIPTS[name][0]()
        except ValueError as error:
            raised = str(error)
        sys.stdout.write(json.dumps([name, raised, heard.messages]) + "\n")
        sys.stdout.flush()  # a fork would copy what waits here


if __name__ == "__main__":
    main()
