"""Make a job's report from the job's files on the shared volume."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from dyntrain.training.audit import audit_directory
from dyntrain.training.layout import JobFolder
from dyntrain.training.ledger import read_events
from dyntrain.training.report.page import facts_of, page, rows_of_changes
from dyntrain.training.report.picture import FONTS, NoFont, picture, without_text
from dyntrain.training.report.story import Story, story_of_events

NO_LEDGER = "not audited: the folder of the events has no ledger of the job"


def story_of_file(file: Path) -> Story:
    """Make a job's story (the data of its report) from the path of its events file or of its folder.

    Raises OSError, records.Unreadable or ValueError if the path has no readable events.
    """
    file = events_file(file)
    file.open("rb").close()
    folder = JobFolder(file.resolve().parent)
    name = folder.root.name if file.name == folder.events.name else file.stem
    return story_of_events(name, read_events(file))


def events_file(file: Path) -> Path:
    """Return the path of the events file in `file` if `file` is a job's folder, otherwise `file` itself."""
    return JobFolder(file).events if file.is_dir() else file


def audit_text(folder: Path) -> str:
    """Return a sentence that says whether the job's ledger shows each sample to be trained on once in each finished
    epoch.
    """
    try:
        audit = audit_directory(JobFolder(folder).ledger)
    except FileNotFoundError:
        return NO_LEDGER
    except (OSError, ValueError) as error:
        return f"not audited: {error}"
    verdict = "each was trained on once in each finished epoch" if audit.exact else "NOT each once"
    return f"{audit.lost} lost, {audit.doubled} doubled in {len(audit.epochs)} finished epochs: {verdict}"


def write_page(file: Path, story: Story, audit: str) -> None:
    """Write the HTML page of a job's report to `file`. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page(story, audit), encoding="utf-8")


def write_picture(file: Path, story: Story) -> None:
    """Write the image with all curves to `file` as PNG.

    Raises OSError if the file cannot be written, and NoFont if texts cannot be drawn. This function needs the package
    `resvg_py`.
    """
    from resvg_py import svg_to_bytes

    svg = picture(story)
    png = svg_to_bytes(svg_string=svg, zoom=2)
    if png == svg_to_bytes(svg_string=without_text(svg), zoom=2):
        raise NoFont(
            f"cannot draw {file}: its texts would be missing, as this machine has none of these fonts: {FONTS}"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(png)


def summary(story: Story, audit: str, *, with_changes: bool = False) -> str:
    """Return the job's summary as text; with `with_changes`, add a line for each membership change."""
    facts = facts_of(story, audit)
    name_width = max(map(len, facts))
    lines = [story.name, *(f"  {name.ljust(name_width)}  {text}" for name, text in facts.items())]
    if with_changes:
        lines += ["  changes"]
        lines += ["    " + "  ".join(" ".join(cell.split()) for cell in row if cell) for row in rows_of_changes(story)]
    return "\n".join(lines)


def as_data(story: Story, audit: str) -> dict[str, Any]:
    """Return the job's story, its audit and its summary as one dict, to be written as JSON."""
    return {**asdict(story), "counts": dict(story.counts), "audit": audit, "facts": facts_of(story, audit)}
