"""The dashboard as a person sees it: the real server and page in a real browser, over a world in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dashboard_bed import Bed, Crowd
from dyntrain.controller.contract.errors import Refused
from dyntrain.controller.contract.job_history import HistoryMark, HistoryPoint, JobHistory, JobProgress
from dyntrain.controller.contract.leave_windows import LEAVE_TAG
from dyntrain.controller.core.pool.inputs import Inputs, Pool, Reserved
from fakes import ELASTIC, World, instance_id, running_cluster
from playwright.sync_api import Locator, Page, expect

pytestmark = pytest.mark.browser

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
MOST_ROWS = 60  # of a table in the document, however long the table is
BOUGHT = Reserved(id="ri-1", instance_type="c5.large", count=4, zone="eu-central-1a", end=4e9)
NODES = 1000
EVENTS = 100_000


class Always(list[Exception]):
    """An error that does not pass by being raised."""

    def pop(self, _index: object = -1) -> Exception:
        return self[0]


@pytest.fixture
def bed() -> Iterator[Bed]:
    world, _master, _workers = running_cluster(1)
    bed = Bed(world)
    yield bed
    bed.stop()


def row(page: Page, instance: str) -> Locator:
    return page.locator(f".nodes [data-key={instance}]")


def see_status(page: Page, instance: str, status: str) -> None:
    expect(row(page, instance).locator(".status")).to_contain_text(status)


def test_a_new_nodes_row_goes_through_the_statuses_without_a_reload(bed: Bed, page: Page) -> None:
    page.goto(f"{bed.address}#/cluster/demo")
    see_status(page, instance_id(1), "ADDED")
    page.evaluate("window.marked = true")

    with bed.change() as world:
        new = world.launch(2)
        world.hear(world.tag(new))
    see_status(page, new, "WAITING")
    with bed.change() as world:
        world.wait(1)
        world.hear(world.report(new))
    see_status(page, new, "ADD_QUEUED")
    with bed.change() as world:
        members = [instance_id(1000), instance_id(1), new]
        world.wait(1)
        world.hear(world.job_event(*members, revision=world.target().revision, samples_per_second=321.0))
    see_status(page, new, "ADDED")
    expect(page.locator(".job")).to_contain_text("3 workers, 321 samples/s")
    expect(page.locator("[data-curve=workers] figcaption")).to_have_text("workers: 3 (from 2 to 3)")
    page.locator("[data-curve=workers] .u-over").hover()
    expect(page.locator("[data-curve=workers] figcaption")).to_contain_text(" at ")
    with bed.change() as world:
        world.hear(world.tag(new, present=False))
    see_status(page, new, "REMOVAL_QUEUED")
    expect(page.locator(".events .space .row").first).to_contain_text(new)

    assert page.evaluate("window.marked")


def test_the_page_says_that_the_server_is_gone_and_recovers_by_itself(bed: Bed, page: Page) -> None:
    page.goto(f"{bed.address}#/cluster/demo")
    expect(page.locator("#connection")).to_have_text("● live")
    bed.stop()
    expect(page.locator("#connection")).to_contain_text("no answer from the server")
    see_status(page, instance_id(1), "ADDED")

    bed.world.launch(2)
    bed.world.hear(bed.world.tag(instance_id(2)))
    again = Bed(bed.world, bed.port)
    expect(page.locator("#connection")).to_have_text("● live")
    see_status(page, instance_id(2), "WAITING")
    again.stop()

    stranger = Bed(bed.world, bed.port, "another-token-0123456789abcdefghi")
    expect(page.locator("#connection")).to_contain_text("of an earlier dashboard")
    stranger.stop()


def test_what_others_wrote_is_shown_as_text_and_never_run(bed: Bed, page: Page) -> None:
    with bed.change() as world:
        new = world.launch(2, NodeType=HOSTILE)
        world.hear(world.tag(new), world.report(new, "prepare_failed", reason=HOSTILE))
    page.goto(f"{bed.address}#/cluster/demo")
    expect(row(page, new).locator(".what")).to_contain_text(HOSTILE)
    expect(page.locator(".events .what", has_text=HOSTILE).first).to_be_visible()

    page.goto(f"{bed.address}#/cluster/demo/node/{new}")
    expect(page.locator(".detail")).to_contain_text(HOSTILE)
    expect(page.locator("dd", has_text="onerror").first).to_be_visible()
    bed.log_lines += [f"line {number}" for number in range(1000)] + [HOSTILE]
    page.get_by_role("link", name="demo").click()
    page.get_by_role("link", name="0, log").click()  # rank 0's
    expect(page.locator(".log")).to_contain_text(f"line 999\n{HOSTILE}")
    assert page.locator("main img, main script").count() == 0
    assert "owned" not in page.title()


def test_clusters_jobs_and_pools_are_shown_with_the_sentences_of_the_command_line(bed: Bed, page: Page) -> None:
    pool = Pool(cluster="demo", instance_type="c5.large", max=4, current=1)
    bed.pool_inputs = lambda: Inputs(at=0.0, pools=(pool,), reserved=(BOUGHT,))
    master, worker = instance_id(1000), instance_id(1)
    with bed.change() as world:
        progress = JobProgress(fraction=0.37, eta_seconds=600.0, metrics={"loss": 0.5})
        report = world.job_event(master, worker, epoch=3, epochs=10, progress=progress)
        for member, seconds in zip(report["detail"]["members"], (0.1, 0.25), strict=True):
            member["step_seconds"] = seconds
        world.hear(report)
    page.goto(bed.address)
    expect(page.locator("[data-cluster=demo] .told").first).to_contain_text("job job-1 running")
    page.get_by_role("link", name="demo").click()
    expect(page.locator(".job")).to_contain_text(f"slow: {worker} takes 0.25 s")
    page.get_by_role("link", name="Jobs").click()
    expect(page.locator("tbody tr")).to_contain_text("37.0 %about 10 min")
    expect(page.locator("tbody tr")).to_contain_text("loss 0.5")
    page.get_by_role("link", name="demo").click()
    with bed.change() as world:
        world.hear(world.job_event(master, worker, epoch=3, epochs=10, state="failed", traceback=HOSTILE))
    expect(page.locator(".failure")).to_contain_text(HOSTILE)
    page.get_by_role("link", name="Jobs").click()
    expect(page.locator("tbody tr")).to_contain_text("job-1failed3/10")
    page.get_by_role("link", name="Pools").click()
    expect(page.locator(".ledger").first).to_contain_text("+4")
    expect(page.locator(".ledger .sum")).to_contain_text("TARGET")


def test_a_change_says_first_what_it_will_do_and_is_done_once_that_was_agreed_to(page: Page) -> None:
    world, master, (worker,) = running_cluster(1, groups=("demo-workers", "demo-spot"))
    world.limits |= {"demo-workers": (0, 4, 1), "demo-spot": (0, 2, 0)}
    machine = world.launch(7, elastic=False)
    bed = Bed(world, allow_changes=True)
    try:
        page.goto(f"{bed.address}#/cluster/demo")
        expect(page.locator(".changing")).to_contain_text("0 now, 0 to 2 allowed")
        page.get_by_label("Group").select_option("demo-workers")
        expect(page.locator(".changing")).to_contain_text("1 now, 0 to 4 allowed")
        page.get_by_label("Elastic workers").fill("3")
        page.get_by_role("button", name="Scale").click()
        expect(page.locator(".said").first).to_contain_text("goes from 1 to 3: 2 more will be launched")
        expect(page.locator(".said code").first).to_contain_text("set-desired-capacity")
        assert world.count("groups.set_desired") == 0
        page.get_by_role("button", name="Do it").click()
        expect(page.locator(".said").first).to_contain_text("Asked for: the desired capacity")
        assert ("groups.set_desired", "demo-workers", "3") in world.calls
        expect(page.locator(".changing")).to_contain_text("3 now, 0 to 4 allowed")

        page.get_by_label("Machine that runs").fill(machine)
        page.get_by_role("button", name="Take").click()
        expect(page.locator(".said").last).to_contain_text(f"{machine} will carry the tag")
        page.get_by_role("button", name="Leave it").click()
        assert ELASTIC.of("demo") not in world.machines[machine].tags
        page.get_by_role("button", name="Take").click()
        page.get_by_role("button", name="Do it").click()
        expect(page.locator(".said").last).to_contain_text("Asked for:")
        assert ELASTIC.of("demo") in world.machines[machine].tags

        page.goto(f"{bed.address}#/cluster/demo/node/{worker}")
        page.get_by_label("At once").check()
        page.get_by_role("button", name="Remove").click()
        expect(page.locator(".said code")).to_contain_text(f"Key={LEAVE_TAG},Value=now")
        page.goto(f"{bed.address}#/cluster/demo/node/{master}")
        page.get_by_label("Node in its place").fill(worker)
        page.get_by_role("button", name="Replace").click()
        expect(page.locator(".said .problem")).to_contain_text("runs the coordinator")
    finally:
        bed.stop()


def test_a_right_that_is_missing_is_a_sentence_and_the_rest_is_shown(bed: Bed, page: Page) -> None:
    bed.world.failing["clusters.trail"] = Always([Refused("AccessDeniedException", "you may not do dynamodb:Query")])
    page.goto(f"{bed.address}#/cluster/demo")
    expect(page.locator(".events .problem")).to_contain_text("you may not do dynamodb:Query")
    see_status(page, instance_id(1), "ADDED")

    del bed.world.failing["clusters.trail"]
    expect(page.locator(".events .problem")).to_have_count(0)
    expect(page.locator(".events .space .row").first).to_be_visible()


def test_a_thousand_nodes_and_a_hundred_thousand_events_are_a_few_rows_in_the_document(page: Page) -> None:
    bed = Bed(World(), readings=Crowd(NODES, EVENTS))
    try:
        page.goto(f"{bed.address}#/cluster/demo")
        expect(page.locator(".nodes .count")).to_have_text("1,000 nodes")
        expect(page.locator(".events .count")).to_contain_text("of 100,000 known")
        for table in (".nodes", ".events"):
            expect(page.locator(f"{table} .space .row").first).to_be_visible()
        assert page.locator(".nodes .space .row").count() <= MOST_ROWS
        assert page.locator(".events .space .row").count() <= MOST_ROWS

        page.locator(".nodes .scroller").press("End")
        expect(row(page, instance_id(NODES - 1))).to_be_in_viewport()
        assert page.locator(".nodes .space .row").count() <= MOST_ROWS
        page.get_by_label("Filter events").fill("e000007")
        expect(page.locator(".events .space .row")).to_have_count(1)
        page.locator(".nodes .scroller").press("Enter")
        expect(page.locator("h1")).to_have_text(instance_id(NODES - 1))
    finally:
        bed.stop()


def test_on_a_narrow_screen_the_changes_and_the_times_below_curves_are_whole(bed: Bed, page: Page) -> None:
    mark = HistoryMark(
        at=bed.world.now, event="forming", instance="", generation=3, seconds=0.5,
        phases={"create": 0.2, "w": 0.01, "i": 0.001},
        reason="launched by a-group-with-a-long-name-of-its-own and untagged",
    )  # fmt: skip
    points = [
        HistoryPoint(at=bed.world.now + 10.0 * n, epoch=n, step=n, workers=2, samples_per_second=9.0, metrics={})
        for n in range(30)
    ]
    history = JobHistory(points=tuple(points), marks=(mark,), counts={}, paused_seconds=0.5)
    with bed.change() as world:
        world.hear(world.job_event(instance_id(1000), instance_id(1), history=history.model_dump(mode="json")))
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto(f"{bed.address}#/cluster/demo")
    expect(page.locator(".path")).to_have_text("Clusters \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} demo")
    expect(page.locator(".past .why")).to_contain_text("create 0.20 s, w 0.01 s")
    expect(page.locator(".past .why")).not_to_contain_text("i 0.0")
    hidden = "(() => { const e = document.querySelector('.past .wide'); return e.scrollWidth - e.clientWidth; })()"
    names = page.locator(".past td:visible").evaluate_all(
        "all => all.map(e => getComputedStyle(e, '::before').content)"
    )
    assert '"generation "' in names, "a number that stands alone says what it is"
    assert page.evaluate(hidden) <= 0, "nothing of a change is off the screen, which no hint would say"
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    right = "document.querySelector('[data-curve=workers] {}').getBoundingClientRect().right"
    room = page.evaluate(right.format(".u-wrap")) - page.evaluate(right.format(".u-over"))
    assert room >= 24, "half of the last time below a curve has room"
