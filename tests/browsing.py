"""A browser and a page for each test; what a page throws or refuses fails it.

Tests that want them are marked `browser`, and their folder's conftest imports them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dyntrain.controller.local.pace import patient
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from surroundings import chromium

SECONDS = 15.0


@pytest.fixture
def browser() -> Iterator[Browser]:
    """Playwright keeps an event loop running in this thread: for no longer than the test, as others want their own."""
    with sync_playwright() as playwright:  # as root there is no sandbox; it shows our own page only
        running = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(1000 * patient(SECONDS))
    expect.set_options(timeout=1000 * patient(SECONDS))
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))

    def on_console(message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text and "net::" not in message.text:
            wrong.append(message.text)  # what the policy of the page refuses is told here, too

    page.on("console", on_console)
    yield page
    context.close()
    assert not wrong
