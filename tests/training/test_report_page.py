"""The page that is left of a job: everything in one file that loads nothing, and no text in it is code."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from dyntrain.controller.cli.main import main
from dyntrain.controller.contract.reports import JobReport
from dyntrain.training import events
from dyntrain.training.protocol.messages import Position
from dyntrain.training.report.figures import MOST_POINTS, WIDTH, figure, thin_curve, ticks_of
from dyntrain.training.report.page import page
from dyntrain.training.report.picture import picture
from dyntrain.training.report.source import summary
from dyntrain.training.report.story import Story, story_of_events, story_of_report
from dyntrain.training.session.chronicle import Chronicle
from PIL import Image

A, B = "i-0000000000000000a", "i-0000000000000000b"
HOSTILE = "</script><img src=x onerror=alert(1)><svg onload=alert(2)>&\"'"


class Tags(HTMLParser):
    """Every element and attribute as a browser would see them."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def at(epoch: int) -> Position:
    return Position(epoch=epoch, offset=0, step=10 * epoch)


def forming(number: int, when: float, members: tuple[str, ...], **more: object) -> events.Forming:
    fields = {"cause": "a worker was added", "joining": (), "leaving": (), "position": at(number), **more}
    return events.Forming.model_validate({"number": number, "members": members, "at": when, **fields})


def segment(epoch: int, when: float, workers: int, **metrics: float) -> events.Segment:
    return events.Segment(
        at=when, generation=1, workers=workers, start=at(epoch), end=at(epoch + 1), epoch=epoch,
        samples=1000, seconds=2.0, pids={}, metrics=metrics,
    )  # fmt: skip


def job(name: str = "loss", text: str = "why") -> list[events.Event]:
    return [
        events.WorkerReady(instance=A, pid=1, seconds=8.0, spare=False, at=100.0),
        forming(1, 100.0, (A,), cause="the job begins", joining=(A,)),
        segment(0, 1900.0, 1, **{name: 0.9}),
        forming(2, 1900.0, (A, B), joining=(B,)),
        events.Pause(generation=2, seconds=0.5, phases={"create": 0.2, "init": 0.001}, at=1901.0),
        segment(1, 3700.0, 2, **{name: math.nan}),
        events.WorkerLost(instance=B, pid=2, reason=text, at=3700.0),
        events.Restart(generation=2, reason=text, commit=None, at=3700.0),
        forming(3, 3700.0, (A,), leaving=(B,)),
        segment(2, 5500.0, 1, **{name: 0.1}),
        events.Finished(position=at(3), at=5500.0),
    ]


def test_the_page_tells_workers_causes_pauses_and_instance_hours() -> None:
    story = story_of_events("job-1", job())
    assert [(change.pause, change.restarted) for change in story.changes] == [(None, False), (0.5, False), (None, True)]
    assert {instance: round(hours, 3) for instance, hours in story.hours.items()} == {A: 1.5, B: 0.5}
    assert (story.restarts_avoided, story.start_seconds, story.samples) == (1, 8.0, 3000)
    text = " ".join(parsed(page(story, "0 lost")).text)
    for wanted in ("a worker was added", "create 0.20 s", "finished", "1 happened, 1 avoided", "2.000 as members"):
        assert wanted in text
    assert "init" not in text, "a phase that took no time says nothing"
    assert "0 lost" in summary(story, "0 lost")


def test_a_failed_job_says_why_also_where_only_its_reports_are_left() -> None:
    heard = [*job()[:-1], events.SafeStateUnreadable(instance=A, step=9, reason="a disk", at=5400.0)]
    heard.append(events.Failed(reason="the script ends itself", at=5500.0))
    fields = {"cluster": "c", "job": "j", "state": "failed", "started_at": 100.0, "sequence": 1, "generation": 3}
    report = JobReport.model_validate(
        {**fields, "revision": 1, "members": [], "history": Chronicle.from_events(heard).history()}
    )
    whole, bounded = story_of_events("j", heard), story_of_report(report)
    assert whole.outcome == bounded.outcome == "failed: the script ends itself"
    assert [(note.what, note.text) for note in whole.notes] == [(note.what, note.text) for note in bounded.notes]


def parsed(html: str) -> Tags:
    tags = Tags()
    tags.feed(html)
    return tags


def test_hostile_names_and_reasons_are_text_and_nothing_is_loaded() -> None:
    html = page(story_of_events(HOSTILE, job(HOSTILE, HOSTILE)), HOSTILE)
    tags = parsed(html)
    assert not {"script", "img", "link", "iframe", "object", "a"} & set(tags.tags)
    assert not [name for name, _ in tags.attributes if name.startswith("on") or name in ("src", "href")]
    assert "".join(tags.text).count("onerror=alert(1)") >= 4, "it is all there to be read"
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'") in (
        tags.attributes
    )


def test_a_loss_that_diverged_interrupts_its_curve() -> None:
    drawn = figure("loss", [(0.0, 1.0), (1.0, None), (2.0, 3.0), (3.0, 2.0)], (0.0, 3.0))
    assert drawn.count("<circle") == 1
    assert drawn.count("<polyline") == 1
    assert "no values" in figure("loss", [(0.0, None)], (0.0, 0.0))


def test_what_scripts_and_machines_wrote_is_text_in_the_picture_too() -> None:
    story = story_of_events(HOSTILE + "\x1b", job(HOSTILE + "\x07", HOSTILE))
    names = {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(picture(story)).iter()}  # noqa: S314
    assert names <= {"svg", "style", "rect", "text", "title", "line", "polyline", "circle"}


def test_a_long_curve_keeps_its_peaks() -> None:
    curve = [(float(n), 100.0 if n == 77_777 else math.sin(n)) for n in range(100_000)]
    short = thin_curve(curve)
    assert len(short) <= MOST_POINTS * 1.1
    assert (77_777.0, 100.0) in short
    assert short == sorted(short)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 0), (5, 5), (-3, 4e9), (1e-9, 2e-9), (0.98, 0.99)])
def test_axes_have_a_few_round_numbers_around_the_values(low: float, high: float) -> None:
    ticks = ticks_of(low, high)
    assert 3 <= len(ticks) <= 7
    assert ticks[0] <= low + 1e-12
    assert ticks[-1] >= high - 1e-12


def test_without_the_volume_the_page_is_made_of_the_jobs_reports() -> None:
    chronicle = Chronicle.from_events(job())
    report = JobReport(
        cluster="demo", job="job-1", state="finished", started_at=90.0, sequence=1, generation=3, revision=1, members=()
    ).model_copy(update={"history": chronicle.history()})
    story = story_of_report(JobReport.model_validate_json(report.model_dump_json()))
    assert [point.workers for point in story.points] == [1, 2, 1]
    assert [(change.pause, change.restarted) for change in story.changes] == [(None, False), (0.5, False), (None, True)]
    assert "made of" in summary(story, "")
    with pytest.raises(ValueError, match="contain no history"):
        story_of_report(report.model_copy(update={"history": None}))


def test_the_command_writes_the_page_of_a_folder_and_says_what_is_wrong_with_others(tmp_path: Path) -> None:
    folder = tmp_path / "job-7"
    folder.mkdir()
    (folder / "events.jsonl").write_bytes(b"".join(event.line() for event in job()))
    done = CliRunner().invoke(main, ["report", str(folder), "--html", str(tmp_path / "out" / "job.html")])
    assert done.exit_code == 0, done.output
    assert f"page: {tmp_path}/out/job.html" in done.output
    assert "not audited: the folder of the events has no ledger of the job" in done.output
    assert "<title>job-7</title>" in (tmp_path / "out" / "job.html").read_text()
    whole = CliRunner().invoke(main, ["report", str(folder), "--json", "--html", str(tmp_path / "out" / "job.html")])
    document = json.loads(whole.stdout)
    assert [change["pause"] for change in document["changes"]] == [None, 0.5, None]
    assert document["facts"]["outcome"] == "finished"
    wide = CliRunner().invoke(main, ["report", str(folder), "--output", "wide"]).output
    assert f"a worker was added  {B}  0.50 s  create 0.20 s" in wide
    drawn = CliRunner().invoke(main, ["report", str(folder), "--png", str(tmp_path / "job.png")])
    assert drawn.exit_code == 0, drawn.output
    with Image.open(tmp_path / "job.png") as image:
        assert image.format == "PNG"
        assert image.width > WIDTH
        blue = sum(b > r + 80 for r, _, b in image.convert("RGB").get_flattened_data())
        assert blue > 3 * WIDTH, "three curves across the picture"
    refused = CliRunner().invoke(main, ["report", str(folder), "--png", "/dev/null/job.png"])
    assert (refused.exit_code, "cannot be written" in refused.output) == (1, True), refused.output
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "newer.jsonl").write_text(json.dumps({"version": 99, "event": "joined"}) + "\n")
    for name, message in (
        ("missing.jsonl", "No such file"),
        ("empty.jsonl", "no events"),
        ("newer.jsonl", "newer dyntrain"),
    ):
        failed = CliRunner().invoke(main, ["report", str(tmp_path / name)])
        assert (failed.exit_code, len(failed.stderr.splitlines())) == (1, 1)
        assert message in failed.stderr


def test_a_picture_that_would_have_no_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without the fonts, by a name that none has."""
    (tmp_path / "events.jsonl").write_bytes(b"".join(event.line() for event in job()))
    monkeypatch.setattr("dyntrain.training.report.picture.FONTS", "No Such Font")
    done = CliRunner().invoke(main, ["report", str(tmp_path / "events.jsonl"), "--png", str(tmp_path / "job.png")])
    assert (done.exit_code, "has none of these fonts: DejaVu Sans" in done.output) == (1, True), done.output
    assert not (tmp_path / "job.png").exists()


def test_a_job_of_one_event_is_a_page() -> None:
    story: Story = story_of_events("j", [events.NodeReady(instance=A, attempt=1, at=1.0)])
    assert "The workers stayed the same" in page(story, "")
