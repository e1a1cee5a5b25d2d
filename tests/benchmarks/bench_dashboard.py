"""The dashboard in Chromium with 1,000 nodes and 100,000 events.

Measured are the time until the rows are painted, and how long the browser's main thread is blocked by a change of every
tenth node and by a word typed into the filter of events. Both are divided by the time that the same browser takes for a
bare page of that size: to parse as many events, and to lay out a plain table of as many rows.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "dashboard"))

from dashboard_bed import Bed, Crowd
from fakes import World
from figures import Figure, at_most, unbounded, write
from playwright.sync_api import Page, expect, sync_playwright
from surroundings import chromium

NODES = 1_000
EVENTS = 100_000
UPDATES = 20
EVERY = 10
PAINT_BOUND = 12.0
UPDATE_BOUND = 1.5
TURNS = 5
MINUTE = 60_000
WATCH = """
    window.tasks = [];
    const keep = (entries) => tasks.push(...entries.map((entry) => entry.duration));
    window.observer = new PerformanceObserver((list) => keep(list.getEntries()));
    observer.observe({type: "longtask", buffered: true});
    const look = () => {
      if ([".nodes", ".events"].every((table) => document.querySelector(`${table} .space .row`)))
        requestAnimationFrame(() => (window.shown = performance.now()));
      else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
"""
BARE = """
    ([nodes, events]) => {
      const text = JSON.stringify(
        Array.from({length: events}, (_, at) => ({id: `e${at}`, at, kind: "status", reason: "because"})));
      const began = performance.now();
      JSON.parse(text);
      const table = document.createElement("table");
      const row = (number) => `<tr>${`<td>${number}</td>`.repeat(8)}</tr>`;
      table.innerHTML = Array.from({length: nodes}, (_, number) => row(number)).join("");
      document.body.append(table);
      table.offsetHeight;
      const took = performance.now() - began;
      table.remove();
      return took;
    }
"""
LONGEST = """
    new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))
      .then(() => Math.max(0, ...tasks, ...observer.takeRecords().map((entry) => entry.duration)))
"""
SHOWN = "new Promise((done) => {const look = () => (window.shown ? done(shown) : setTimeout(look, 10)); look();})"


def main(out: Path) -> list[Figure]:
    crowd = Crowd(NODES, EVENTS)
    bed = Bed(World(), readings=crowd)
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
            page = browser.new_page()
            page.set_default_timeout(MINUTE)
            expect.set_options(timeout=MINUTE)
            results = _measured(page, bed, crowd)
            browser.close()
    finally:
        bed.stop()
    write(out, "dashboard", results)
    return [
        unbounded("dashboard.rows_shown_seconds", results["rows_shown_seconds"]),
        unbounded("dashboard.longest_update_ms", results["longest_update_ms"]),
        unbounded("dashboard.bare_page_ms", results["bare_page_ms"]),
        at_most("dashboard.rows_shown_over_bare", results["rows_shown_over_bare"], PAINT_BOUND),
        at_most("dashboard.longest_update_over_bare", results["longest_update_over_bare"], UPDATE_BOUND),
        unbounded("dashboard.rows_in_the_document", results["rows_in_the_document"]),
    ]


def _measured(page: Page, bed: Bed, crowd: Crowd) -> dict[str, Any]:
    page.add_init_script(WATCH)
    page.goto(f"{bed.address}#/cluster/demo")
    expect(page.locator(".events .space .row").first).to_be_visible()
    shown = page.evaluate(SHOWN) / 1000
    page.evaluate("tasks.length = 0")
    chip = page.locator(".chips [data-status=REMOVAL_QUEUED]")
    for number in range(UPDATES):
        with bed.change():
            crowd.change(EVERY)
        expect(chip).to_have_count(1 if number % 2 == 0 else 0)
    page.get_by_label("Filter events").fill("e000007")
    expect(page.locator(".events .space .row")).to_have_count(1)
    rows = page.locator(".space .row").count()
    longest = page.evaluate(LONGEST)  # the browser does not report tasks below 50 ms
    bare = statistics.median(page.evaluate(BARE, [NODES, EVENTS]) for _ in range(TURNS))
    return {
        "rows_shown_seconds": round(shown, 2),
        "longest_update_ms": round(longest),
        "bare_page_ms": round(bare),
        "rows_shown_over_bare": round(1000 * shown / bare, 2),
        "longest_update_over_bare": round(longest / bare, 2),
        "rows_in_the_document": rows,
    }
