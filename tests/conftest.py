"""Its place makes this folder importable, so that tests can share `fakes`. The order of the files, how long a test may
take, and what some need of the machine.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from pathlib import Path
from typing import get_args

import lateness
import pytest
import pytest_timeout
import watchdog
from cost import Costs
from dyntrain.controller.local.pace import slowness
from dyntrain.training.protocol.engines import VARIABLE as ENGINE
from dyntrain.training.protocol.engines import EngineName
from evidence import FAILED, keep
from hypothesis import settings
from second_look import add_option, note_failures
from surroundings import name_what_was_skipped, skip_what_lacks_something

# MXNet comes later: its threads wait in busy loops, which a test of small arrays pays for and gains nothing by
os.environ.setdefault("OMP_NUM_THREADS", "1")
settings.register_profile("patient", deadline=None)  # no example is wrong because the machine is busy
settings.load_profile("patient")

TESTS = pytest.StashKey[int]()  # that this process has run
COLLECTED_EACH = 20
LONG_FIRST = (
    "e2e",
    "training",
    "packaging",
    "jobs",
    "local",
    "controller",
    "scenarios",
    "deploy",
    "dashboard",
    "node_bootstrap",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--engine", choices=get_args(EngineName), default="pslite", help="what workers of the tests sum gradients with"
    )
    add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    os.environ[ENGINE] = config.getoption("--engine")  # which workers inherit
    note_failures(config)
    config.pluginmanager.register(watchdog)
    config.pluginmanager.register(Costs())
    lateness.LATENESS.start()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files go to the processes in this order: were a long one last, the other process would wait for its end. In a
    folder, those first whose tests may take longest.
    """
    order = {folder: number for number, folder in enumerate(LONG_FIRST)}
    longest: dict[Path, float] = {}
    for item in items:
        marked = item.get_closest_marker("timeout")
        longest[item.path] = max(longest.get(item.path, 0.0), float(marked.args[0]) if marked else 0.0)
    items.sort(key=lambda item: (order.get(item.path.parent.name, len(order)), -longest[item.path]))


def pytest_collection_finish() -> None:
    """What was collected stays until the end."""
    leave_out_of_collections()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> object:
    """The bound that ends a test that hangs, as patient as all others."""
    bound = watchdog.bound(settings.timeout)
    watchdog.begin(item, bound)
    return pytest_timeout.pytest_timeout_set_timer(item, settings._replace(timeout=bound))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    lateness.begin(item)
    slowness()  # a measurement takes a moment, and an event loop that a test runs in would stand still for it
    skip_what_lacks_something(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    lateness.tell(report, item)
    if report.failed:
        keep(report, item, item.session.config._tmp_path_factory.getbasetemp(), FAILED)  # type: ignore[attr-defined]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    name_what_was_skipped(terminalreporter)
    lateness.sum_up(terminalreporter)


def leave_out_of_collections() -> None:
    """What is there now. Each of Gluon's data loaders collects garbage, through all that there is: a test late in a run
    would pay for what those before it have left in their libraries' caches.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """At each file's end, and within long ones."""
    item.config.stash[TESTS] = number = item.config.stash.get(TESTS, 0) + 1
    if nextitem is not None and (nextitem.path != item.path or number % COLLECTED_EACH == 0):
        leave_out_of_collections()
