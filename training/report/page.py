"""HTML page of a job's report in one file, without scripts, fonts or external images. Pure.

Metric names, reasons and tracebacks come from scripts and machines, so every text is escaped where it is inserted in
HTML.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape

from dyntrain.controller.contract.messages import INSTANCE_ID
from dyntrain.training.report.figures import Mark, figure
from dyntrain.training.report.story import MembershipChange, Story

MOST_MARKS = 40  # most numbered marks in a figure
MOST_TABLE_ROWS = 500  # most rows in a table
SHOWN_SECONDS = 0.005  # shortest phase shown; a shorter phase would round to zero
STYLE = """
:root { color-scheme: light dark; --curve: #1f6feb; --grid: #8886; --mark: #b35900; }
@media (prefers-color-scheme: dark) { :root { --curve: #6cb6ff; --mark: #f0a35e; } }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: .2rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; } dt { opacity: .75; } dd { margin: 0; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
.wide { overflow-x: auto; }
th, td { text-align: left; vertical-align: top; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--grid); }
.ids { white-space: pre; } td { overflow-wrap: break-word; }
pre { white-space: pre-wrap; margin: 0; font-size: .85rem; }
svg { width: 100%; height: auto; } svg text { font-size: 12px; fill: currentColor; opacity: .8; }
.grid { stroke: var(--grid); } .mark { stroke: var(--mark); stroke-dasharray: 3 3; }
.curve { fill: none; stroke: var(--curve); stroke-width: 2; } circle.curve { fill: var(--curve); }
@media (max-width: 40rem) {
  dl, tbody, tr, td { display: block; } thead, .second, td:empty { display: none; } dd { margin-bottom: .4rem; }
  tr { padding: .5rem 0; border-bottom: 1px solid var(--grid); } td { border: 0; padding: .1rem 0; }
  td[data-name]::before { content: attr(data-name) " "; opacity: .75; } svg text { font-size: 25px; }
}
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(story: Story, audit: str) -> str:
    """Return the HTML page of a job's report. `audit`: a sentence that says whether each sample was trained on exactly
    once in each finished epoch.
    """
    sections = [
        f"<h1>{escape(story.name)}</h1>",
        f"<p>{escape(lifetime(story))}</p>",
        _facts_list(facts_of(story, audit)),
        *(f"<h2>{escape(title)}</h2>{svg}" for title, svg in figures_of(story)),
        "<p>Dashed lines are the changes below, by number.</p>",
        "<h2>Changes</h2>",
        _changes_table(story),
        *_notes_table(story),
        *_hours_table(story.hours),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(story.name)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(sections)
        + "\n</body></html>\n"
    )


def lifetime(story: Story) -> str:
    return f"{_time_text(story.began)} to {_time_text(story.ended)}: {story.outcome}"


def figures_of(story: Story) -> list[tuple[str, str]]:
    """Return the title and the SVG figure of each curve in the report."""
    shown_changes = story.changes[-MOST_MARKS:]
    marks = [
        Mark(change.at, number, f"{number}: {change.cause}")
        for number, change in enumerate(story.changes, 1)
        if change in shown_changes
    ]
    time_span = (story.began, story.ended)
    worker_points = [(point.at, float(point.workers)) for point in story.points]
    if worker_points and story.changes:
        worker_points.insert(0, (min(story.changes[0].at, worker_points[0][0]), worker_points[0][1]))
    figures = [
        ("Workers", figure("Workers", worker_points, time_span, marks, steps=True, from_zero=True)),
        (
            "Samples a second",
            figure(
                "Samples a second", [(point.at, point.rate) for point in story.points], time_span, marks, from_zero=True
            ),
        ),
    ]
    return figures + [
        (
            name,
            figure(
                name,
                [(point.at, point.metrics[name]) for point in story.points if name in point.metrics],
                time_span,
                marks,
            ),
        )
        for name in story.metrics
    ]


def facts_of(story: Story, audit: str) -> dict[str, str]:
    """Return the lines of the job's summary by their headings, for the HTML page and the command line."""
    last_point = story.points[-1] if story.points else None
    metrics = (
        ", ".join(f"{name} {_value_text(value)}" for name, value in last_point.metrics.items()) if last_point else ""
    )
    facts = {
        "outcome": story.outcome,
        "time": _duration_text(story.ended - story.began),
        "epochs": str(last_point.epoch + 1 if last_point else 0),
        "at the end": metrics or "no metrics",
        "changes": f"{len(story.changes) if story.whole else story.counts.get('forming', 0)}, of which "
        f"{story.restarts_avoided} kept every process that stayed",
        "survivors paused": f"{_duration_text(story.paused)} in all",
        "restarts": _restarts_text(story),
        "samples": audit,
    }
    if story.samples is not None:
        facts["trained on"] = f"{story.samples} samples"
    if story.hours:
        facts["instance-hours"] = f"{sum(story.hours.values()):.3f} as members; machines run longer than that"
    if not story.whole:
        facts["made of"] = "the history in the job's reports, which is coarser the longer the job lasts"
    return facts


def _restarts_text(story: Story) -> str:
    restart_count = story.counts.get("restart", 0)
    counts_text = f"{restart_count} happened, {story.restarts_avoided} avoided"
    if story.start_seconds is None or not story.restarts_avoided:
        return counts_text
    return (
        f"{counts_text}; a worker of this job takes {_duration_text(story.start_seconds)} from its start until it is "
        f"ready, so avoiding them saved about {_duration_text(story.restarts_avoided * story.start_seconds)}"
    )


def _facts_list(facts: Mapping[str, str]) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items())
    return f"<dl>{rows}</dl>"


def _changes_table(story: Story) -> str:
    omitted_count = max(0, len(story.changes) - MOST_TABLE_ROWS)
    rows = rows_of_changes(story)[omitted_count:]
    if not rows:
        return "<p>The workers stayed the same.</p>"
    omitted_note = f"<p>The first {omitted_count} are left out.</p>" if omitted_count else ""
    column_names = ("", "after", "epoch", "cause", "joined", "left", "pause", "phases")
    return omitted_note + _table(column_names, rows)


def rows_of_changes(story: Story) -> list[list[str]]:
    """Return the table of membership changes: number, time since the start, epoch, cause, joined, left,
    pause, phases.
    """
    return [_change_row(number, change, story.began) for number, change in enumerate(story.changes, 1)]


def _change_row(number: int, change: MembershipChange, began: float) -> list[str]:
    cause = "; ".join(
        filter(None, [change.cause, "all workers were restarted" if change.restarted else "", change.outcome])
    )
    phases = ", ".join(
        f"{name} {_duration_text(phase_seconds)}"
        for name, phase_seconds in change.phases.items()
        if phase_seconds >= SHOWN_SECONDS
    )
    return [
        str(number),
        _duration_text(change.at - began),
        "" if change.epoch is None else str(change.epoch),
        cause,
        "\n".join(change.joining),
        "\n".join(change.leaving),
        "" if change.pause is None else _duration_text(change.pause),
        phases,
    ]


def _notes_table(story: Story) -> Iterable[str]:
    if story.notes:
        rows = [
            [_duration_text(note.at - story.began), note.what.replace("_", " "), note.instance, note.text]
            for note in story.notes[-MOST_TABLE_ROWS:]
        ]
        yield "<h2>What else happened</h2>"
        yield _table(("after", "what", "instance", ""), rows)


def _hours_table(hours: Mapping[str, float]) -> Iterable[str]:
    if hours:
        rows = [
            [instance, f"{instance_hours:.3f}"]
            for instance, instance_hours in sorted(hours.items(), key=lambda instance_and_hours: -instance_and_hours[1])
        ]
        yield "<h2>Instance-hours</h2>"
        yield _table(("instance", "hours as a member"), rows)


def _table(column_names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    header_cells = "".join(f"<th>{escape(name)}</th>" for name in column_names)
    name_attributes = [f' data-name="{escape(name)}"' if name else "" for name in column_names]
    row_cells = (
        "".join(
            f"<td{name_attribute}>{_cell(cell)}</td>" for name_attribute, cell in zip(name_attributes, row, strict=True)
        )
        for row in rows
    )
    body = "".join(f"<tr>{cells}</tr>" for cells in row_cells)
    return f'<div class="wide"><table><thead><tr>{header_cells}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(text: str) -> str:
    if all(re.fullmatch(INSTANCE_ID, line) for line in text.split("\n")):
        return f'<span class="ids">{escape(text)}</span>'
    return f"<pre>{escape(text)}</pre>" if "\n" in text else escape(text)


def _value_text(value: float | None) -> str:
    return "not a number" if value is None else f"{value:.4g}"


def _time_text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _duration_text(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.2f} s"
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {seconds_left} s"
