"""What the tests cost in processor time, so that it stays in sight: the dearest files at the end of a run.

Time counts where it is known: of the process that runs the test, and of its children once they have been waited for.
What serves many tests and ends with the run is in the sum of the whole command alone, which `second_look.py` says.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest

DEAREST = 10
COST = "processor seconds"


def processor_seconds() -> float:
    """Of this process and of those of its descendants that have been waited for, user and system."""
    return sum(os.times()[:4])


class Costs:
    """A pytest plugin: each test's cost travels in the report of its teardown."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._began = processor_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "teardown":
            report.user_properties.append((COST, processor_seconds() - self._began))
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        by_file: Counter[str] = Counter()
        for reports in terminalreporter.stats.values():
            for report in reports:
                if isinstance(report, pytest.TestReport):
                    properties = dict(report.user_properties)
                    by_file[report.nodeid.split("::")[0]] += properties.get(COST, 0.0)  # type: ignore[assignment]
        if sum(by_file.values()) < 1:
            return
        terminalreporter.section("dearest files, in seconds of processor", sep="-")
        for file, seconds in by_file.most_common(DEAREST):
            terminalreporter.write_line(f"{seconds:7.1f}  {file}")
