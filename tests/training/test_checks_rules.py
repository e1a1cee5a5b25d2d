"""The rules' rows, and how one of them is silenced: by a line, a script or a launch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from dyntrain.training.checks.explain import explain
from dyntrain.training.checks.findings import CHECKS_VARIABLE, IGNORE_VARIABLE, Findings, Place
from dyntrain.training.checks.rules import MOST_RULE_WORDS, RULES

ROOT = Path(__file__).parents[2]
HERE = Place("train.py", 3, 3)


def sources() -> Iterator[tuple[Path, str]]:
    for path in (ROOT / "training").rglob("*.py"):
        if path.name != "rules.py":
            yield path, path.read_text()


def test_a_rule_says_in_few_words_what_was_found_and_what_to_write() -> None:
    for rule in RULES.values():
        assert len(f"{rule.sentence} {rule.remedy}".split()) <= MOST_RULE_WORDS, rule.code
        assert rule.sentence
        assert rule.remedy


def test_every_rule_is_applied_somewhere_and_every_code_is_a_rules() -> None:
    codes = {code for _, source in sources() for code in re.findall(r'"(DT\d{3})"', source)}
    assert codes == set(RULES)


@pytest.mark.parametrize("code", RULES)
def test_a_rule_is_explained_with_the_way_to_silence_it(code: str) -> None:
    page = explain(code.lower())
    assert page.startswith(f"# {code} ({RULES[code].severity}): ")
    assert ("cannot be silenced" in page) == RULES[code].fixed
    assert (f"ignore[{code}]" in page) == (not RULES[code].fixed)


def test_all_rules_are_listed_and_an_unknown_code_is_said_to_be_none() -> None:
    assert [line[:5] for line in explain().splitlines()] == list(RULES)
    with pytest.raises(ValueError, match=r"no rule has the code 'DT999'"):
        explain("DT999")


def test_a_warning_is_told_once_for_a_line_and_stops_nothing(reported_codes: Callable[[], list[str]]) -> None:
    findings = Findings()
    for line in (3, 3, 4):
        assert findings.find("DT302", Place("train.py", line, line), name="dense0_weight") is None
    assert reported_codes() == ["DT302", "DT302"]
    assert findings.stop_messages is None
    assert "DT302" in (Findings(mode="strict").find("DT302", HERE, name="x") or ""), "but where it is asked for"


def test_all_that_stops_a_job_is_said_together() -> None:
    """What a trial has shown comes last: the others may be its cause."""
    findings = Findings()
    findings.find("DT201", HERE, name="dense0_weight", share=0.5, whole=12, first=5, rest=7)
    findings.find("DT101", HERE)
    findings.find("DT301", Place("train.py", 9, 9), name="dense0_weight")
    findings.find("DT101", HERE)
    lines = re.findall(r"^train.py:(\d): (DT\d+): ", findings.stop_messages or "", re.M)
    assert lines == [("3", "DT101"), ("9", "DT301"), ("3", "DT201")]


@pytest.mark.parametrize("mode", ["warn", "strict"])
def test_what_is_ignored_is_neither_told_nor_stops_and_stands_in_what_was_silenced(
    mode: str, monkeypatch: pytest.MonkeyPatch, reported_codes: Callable[[], list[str]]
) -> None:
    monkeypatch.setenv(IGNORE_VARIABLE, "DT302, DT101")
    findings = Findings(("DT604",), mode)
    assert not any(findings.find(code, HERE, name="x", names="x", memory="x") for code in ("DT302", "DT101", "DT604"))
    assert not reported_codes()
    assert set(findings.silenced) == {"DT302", "DT101", "DT604"}


def test_a_comment_silences_its_statement_alone(tmp_path: Path) -> None:
    script, findings = tmp_path / "train.py", Findings()
    script.write_text('a = find(\n    "DT101",  # dyntrain: ignore[DT302, DT101]\n)\nb = find("DT101")\n')
    names = {"find": findings.find, "__name__": "train"}
    exec(compile(script.read_text(), str(script), "exec"), names)  # noqa: S102
    assert names["a"] is None
    assert str(names["b"]).startswith(f"{script}:4: DT101: ")
    assert findings.silenced == {"DT101": f"{script}:1"}


def test_without_checks_nothing_is_looked_at_but_what_gives_a_step_its_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CHECKS_VARIABLE, "off")
    findings = Findings(mode="strict")
    assert findings.is_off, "what a launch says goes before what the script says"
    assert findings.find("DT101", HERE) is None
    assert findings.find("DT406", HERE, n=0) is not None
    assert findings.silenced == {"all": "checks='off'"}


@pytest.mark.parametrize(
    ("ignore", "mode", "says"),
    [
        (("DT999",), None, "no rule has the code"),
        (("DT401",), None, "DT401 cannot be silenced"),
        ("DT604", None, r"as in ignore=\('DT301',\)"),
        ((), "loud", "must be 'off', 'warn' or 'strict'"),
    ],
)
def test_what_cannot_be_silenced_is_refused(ignore: tuple[str, ...], mode: str | None, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Findings(ignore, mode)
