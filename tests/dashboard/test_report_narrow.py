"""The report on a telephone: what would break for a reader is labels that cannot be read, columns off the screen."""

from __future__ import annotations

import pytest
from dyntrain.training import events
from dyntrain.training.protocol.messages import Position
from dyntrain.training.report.page import page as report
from dyntrain.training.report.story import story_of_events
from playwright.sync_api import Page

pytestmark = pytest.mark.browser

WIDTH = 390
INSTANCES = tuple(f"i-{number:017x}" for number in range(3))
LEAST = 9.0  # pixels that a letter takes


def job() -> list[events.Event]:
    """An hour in which the members change every few minutes."""
    heard: list[events.Event] = []
    for number in range(12):
        began, at = 300.0 * number, Position(epoch=number, offset=0, step=100 * number)
        after = Position(epoch=number + 1, offset=0, step=100 * number + 100)
        heard += [
            events.Forming(
                number=number + 1, members=INSTANCES, position=at, commit=None, safe=None, joining=INSTANCES[1:],
                cause="launched by a-group-with-a-long-name-of-its-own", leaving=INSTANCES[:1], at=began,
            ),
            events.Pause(generation=number + 1, seconds=0.5, phases={"create": 0.2, "init": 0.001}, at=began + 1),
            events.Segment(
                at=began + 299, generation=number + 1, workers=3, start=at, end=after, epoch=number, samples=1000,
                seconds=2.0, pids={}, metrics={"accuracy": 0.0001 * number},
            ),
        ]  # fmt: skip
    return heard


def test_on_a_narrow_screen_everything_is_within_it_and_can_be_read(page: Page) -> None:
    page.set_viewport_size({"width": WIDTH, "height": 800})
    page.set_content(report(story_of_events("job-1", job()), "0 lost"))
    assert page.evaluate("document.documentElement.scrollWidth") <= WIDTH
    hidden = page.evaluate("[...document.querySelectorAll('.wide')].filter(e => e.scrollWidth > e.clientWidth).length")
    assert hidden == 0, "no column is off the screen"
    boxes = page.evaluate(
        "[...document.querySelectorAll('svg text')].map(e => e.getBoundingClientRect()).filter(r => r.height)"
        ".map(r => [r.left, r.right, r.height])"
    )
    assert len(boxes) > 20
    assert min(height for _, _, height in boxes) >= LEAST
    assert min(left for left, _, _ in boxes) >= 0
    assert max(right for _, right, _ in boxes) <= WIDTH


def test_axes_labels_of_a_narrow_screen_do_not_lie_over_each_other(page: Page) -> None:
    page.set_viewport_size({"width": WIDTH, "height": 800})
    page.set_content(report(story_of_events("job-1", job()), "0 lost"))
    overlaps = page.evaluate(
        """() => {
          const axes = [...document.querySelectorAll('svg text')].filter((e) => !/^[0-9]+$/.test(e.textContent)
            || e.getAttribute('text-anchor') === 'end');
          const boxes = axes.map((e) => [e.textContent, e.getBoundingClientRect()]).filter(([, r]) => r.height);
          const over = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3
            && b.top < a.bottom - 3;
          return boxes.flatMap(([name, a], i) => boxes.slice(i + 1).filter(([, b]) => over(a, b))
            .map(([other]) => `${name} over ${other}`));
        }"""
    )
    assert overlaps == []
