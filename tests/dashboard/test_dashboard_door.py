"""Who gets in, and what the command tells whom: without a browser."""

from __future__ import annotations

import http.client
import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from dashboard_bed import TOKEN, Bed
from dyntrain.controller.cli.answers.connection import Connection
from dyntrain.controller.cli.main import main
from dyntrain.controller.contract.errors import GiveUp, Misconfigured
from dyntrain.controller.dashboard.changing import ChangeRequest, Remove, Scale, answer_change
from dyntrain.controller.dashboard.command import kept_token, listen
from dyntrain.controller.local.pace import patient
from fakes import ELASTIC, World, running_cluster

LOCAL = "127.0.0.1"
JSON = "application/json"
SCALE = '{"asked": {"change": "scale", "cluster": "demo", "n": 3}}'
SENTENCE = "the desired capacity of demo-workers goes from 1 to 3: 2 more will be launched"


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    world, _master, _workers = running_cluster(1)
    bed = Bed(world)
    yield bed
    bed.stop()


def send(
    bed: Bed, path: str, host: str | None = None, method: str = "GET", body: str = "", **more: str
) -> http.client.HTTPResponse:
    """`more` are headers; a page's own Origin, unless they say otherwise."""
    line = http.client.HTTPConnection(LOCAL, bed.port, timeout=patient(60))
    own = {"Host": host or f"{LOCAL}:{bed.port}", "Origin": f"http://{LOCAL}:{bed.port}"}
    headers = {**own, **{name.replace("_", "-"): value for name, value in more.items()}}
    line.request(method, path, body=body or None, headers={name: value for name, value in headers.items() if value})
    answer = line.getresponse()
    answer.read()
    return answer


@pytest.mark.parametrize(
    "path", ["/", "/index.html", "/api/pools", f"/{TOKEN[:-1]}/", f"/{TOKEN}x/", f"//{TOKEN}/", f"/?token={TOKEN}"]
)
def test_without_the_whole_token_in_its_place_nothing_is_there(bed: Bed, path: str) -> None:
    assert send(bed, path).status == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1.evil.example:{port}"]
)
def test_a_page_of_elsewhere_whose_name_resolves_to_this_machine_is_refused(bed: Bed, host: str) -> None:
    assert send(bed, f"/{TOKEN}/", host.format(port=bed.port)).status == 421


@pytest.mark.parametrize(
    "path", [f"/{TOKEN}/", f"/{TOKEN}/static/main.js", f"/{TOKEN}/api/pools", "/", f"/{TOKEN}/nothing"]
)
def test_every_answer_forbids_scripts_frames_and_requests_of_elsewhere(bed: Bed, path: str) -> None:
    answer = send(bed, path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers.get_all("cache-control") == ["no-store"]


@pytest.mark.parametrize("path", ["static/../server.py", "static/..%2fserver.py", "static/%2e%2e/guard.py"])
def test_only_the_pages_own_files_are_served(bed: Bed, path: str) -> None:
    assert send(bed, f"/{TOKEN}/{path}").status == 404


@pytest.mark.parametrize("number", ["%C2%B2", "-1", "x", "9" * 5000])
def test_what_is_no_number_is_refused_and_is_no_fault_of_the_page(bed: Bed, number: str) -> None:
    for field in ("before", "limit"):
        assert send(bed, f"/{TOKEN}/api/events/demo?{field}={number}").status == 400


def test_pools_are_answered_as_the_command_line_prints_them(bed: Bed) -> None:
    assert send(bed, f"/{TOKEN}/api/pools").status == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_nothing_can_be_changed(bed: Bed, method: str) -> None:
    assert send(bed, f"/{TOKEN}/api/groups/demo").status == 404
    for path in ("", "api/pools", "api/events/demo", "api/explain/demo/i-1"):
        assert send(bed, f"/{TOKEN}/{path}", method=method).status == 405
    assert send(bed, f"/{TOKEN}/api/change", method=method, body=SCALE, Content_Type=JSON).status == 404


@pytest.fixture(scope="module")
def changing() -> Iterator[Bed]:
    world, _master, _workers = running_cluster(1)
    world.limits["demo-workers"] = (0, 4, 1)
    bed = Bed(world, allow_changes=True)
    yield bed
    bed.stop()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": ""}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_what_another_page_sends_changes_nothing(changing: Bed, headers: dict[str, str], status: int) -> None:
    sent = {"Content_Type": JSON, **headers}
    agreed = json.dumps({"asked": json.loads(SCALE)["asked"], "agreed": SENTENCE})
    assert send(changing, f"/{TOKEN}/api/change", method="POST", body=agreed, **sent).status == status
    assert send(changing, "/another-token/api/change", method="POST", body=agreed, **sent).status == 404
    assert changing.world.count("groups.set_desired") == 0


def test_a_change_can_be_asked_for_in_no_address(changing: Bed) -> None:
    assert send(changing, f"/{TOKEN}/api/change").status == 405


@pytest.mark.parametrize(
    "body", ["", "[]", "x" * 20_000, '{"asked": {"change": "scale", "cluster": "demo", "n": -1}}', '{"asked": {}}']
)
def test_what_is_no_change_is_refused_in_a_sentence(changing: Bed, body: str) -> None:
    answer = send(changing, f"/{TOKEN}/api/change", method="POST", body=body, Content_Type=JSON)
    assert answer.status == (413 if len(body) > 10_000 else 400)


def test_a_change_is_done_only_by_the_sentence_that_stands_now() -> None:
    world, _master, (worker,) = running_cluster(1)
    world.limits["demo-workers"] = (0, 4, 1)
    connection = Connection(world.ports, world.registry, ELASTIC)
    change = Scale(change="scale", cluster="demo", n=3)
    shown = answer_change(connection, ChangeRequest(asked=change))
    assert (shown["done"], shown["sentence"]) == (False, SENTENCE)
    world.limits["demo-workers"] = (0, 4, 2)
    stale = answer_change(connection, ChangeRequest(asked=change, agreed=SENTENCE))
    assert (stale["done"], "check it again" in stale["problem"]) == (False, True)
    assert world.count("groups.set_desired") == 0
    assert answer_change(connection, ChangeRequest(asked=change, agreed=stale["sentence"]))["done"]
    assert ("groups.set_desired", "demo-workers", "3") in world.calls
    with pytest.raises(GiveUp, match="not 9"):
        answer_change(connection, ChangeRequest(asked=Scale(change="scale", cluster="demo", n=9)))
    leaving = Remove(change="remove", instance=worker)
    assert answer_change(
        connection,
        ChangeRequest(asked=leaving, agreed=answer_change(connection, ChangeRequest(asked=leaving))["sentence"]),
    )["done"]
    assert ELASTIC.of("demo") not in world.machines[worker].tags


def test_the_token_is_in_no_log(capfd: pytest.CaptureFixture[str]) -> None:
    bed = Bed(World())
    bed.pool_inputs = lambda: 1 // 0  # type: ignore[return-value, assignment]
    assert send(bed, f"/{TOKEN}/api/pools").status == 500
    bed.stop()
    output = "".join(capfd.readouterr())
    assert "ZeroDivisionError" in output
    assert TOKEN not in output


def test_a_kept_token_is_the_owners_alone_and_the_same_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = kept_token(path)
    assert len(token) >= 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kept_token(path) == token
    path.chmod(0o644)
    with pytest.raises(Misconfigured, match="can be read by other users"):
        kept_token(path)


def test_a_port_that_is_taken_is_said_in_a_sentence(bed: Bed) -> None:
    with pytest.raises(Misconfigured, match=f"port {bed.port} .* give another port"):
        listen(bed.port)


def test_a_cloud_takes_leave_to_change_only_together_with_a_page_that_uses_it() -> None:
    done = CliRunner().invoke(main, ["local", "up", "--allow-changes"])
    assert done.exit_code == 2
    assert "add --dashboard" in done.output
