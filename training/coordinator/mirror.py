"""On a cluster, lists the training workers as files in the directory of the launch.

The membership follows from tags and groups: editing a file changes nothing, and is overwritten at the next change.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from dyntrain.controller.contract.reports import JobReport
from dyntrain.training.coordinator.host_log import HostLog, present, write_hosts

log = logging.getLogger("coordinator")


class Mirror:
    """Writes the files. Calls block as long as the volume does, so nothing that the job needs may wait for them."""

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._log: HostLog | None = None
        self._last_error = ""

    def show(self, directory: Path, report: JobReport, addresses: Mapping[str, str], last: str) -> None:
        """Update the files from a report. The address `last` ends the list.

        A write error is logged once, and the write is tried again at the next call.
        """
        try:
            if self._log is None or directory != self._directory:
                self._log, self._directory = HostLog(directory), directory
            hosts = present(self._log.hosts, report, addresses)
            if hosts != self._log.hosts:  # the list first: an entry in the log says that the list has the change
                write_hosts(directory, sorted(hosts, key=lambda host: host == last))
                self._log.record(hosts)
        except OSError as error:
            if str(error) != self._last_error:
                log.warning("who trains is not written down: %s", error)
            self._last_error = str(error)
