"""Its place makes this folder importable, so that tests can share `fakes`. And the order of the files."""

from __future__ import annotations

import pytest

LONG_FIRST = ("e2e", "training", "local", "controller", "scenarios", "deploy", "node_bootstrap")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files go to the processes in this order: were a long one last, the other process would wait for its end."""
    order = {folder: number for number, folder in enumerate(LONG_FIRST)}
    items.sort(key=lambda item: order.get(item.path.parent.name, len(order)))
