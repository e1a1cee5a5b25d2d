"""Lists a cluster's training workers in files in the directory of the launch.

Editing the lists of workers has no effect on the job, as tags and Auto Scaling groups decide which nodes are members. A
user's edits are overwritten at the next change of the workers.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from dyntrain.controller.contract.reports import JobReport
from dyntrain.training.coordinator.host_log import HostLog, training_hosts, write_hosts

log = logging.getLogger("coordinator")


class WorkerListFiles:
    """Writes the files that list the cluster's training workers.

    A call blocks as long as the shared volume blocks, so the job must not wait for a call.
    """

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._log: HostLog | None = None
        self._last_error = ""

    def update(self, directory: Path, report: JobReport, addresses: Mapping[str, str], last_address: str) -> None:
        """Update the files that list the training workers from a job report.

        The address `last_address` is written as the last line of the list. A write error is logged once, and the write
        is tried again at the next call.
        """
        try:
            if self._log is None or directory != self._directory:
                self._log, self._directory = HostLog(directory), directory
            hosts = training_hosts(self._log.hosts, report, addresses)
            if hosts != self._log.hosts:  # first the list: a log entry promises that the list has the change
                write_hosts(directory, sorted(hosts, key=lambda host: host == last_address))
                self._log.record_hosts(hosts)
        except OSError as error:
            if str(error) != self._last_error:
                log.warning("the list of training workers could not be written: %s", error)
            self._last_error = str(error)
