"""What the documents name is there: files, links, headings, and the fields in their tables; and each can be come by.

A document that is added later is covered without being listed.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from botocore import xform_name
from dyntrain.controller.contract.messages import ClusterPolicy
from markdown import ROOT, documents, headings, links, prose, spans, text

MOST_LINES = {"README.md": 130, "CHANGELOG.md": 40, "OPERATIONS.md": 70}
ROOMS = ("controller", "node_bootstrap", "training", "tests", "findings", ".ci", ".chalice")
CODE = ("controller", "node_bootstrap", "training")
NAMED = re.compile(r"[\w.-]+(?:/[\w.*-]+)*\.(?:md|py|toml|mk|yaml|svg|png|sh|service)|(?:[\w.-]+/)+")
KINDS = (".py", ".yaml", ".json", ".service", ".toml", ".js", ".html")
NAME = re.compile(r"[a-z]+_\w+|[A-Z][a-z]+[A-Z]\w+|[A-Z]{2,}_[A-Z_]+")
OTHER_NAMES = {  # of other programs, and with places for a person's own
    *("CostCenter", "SM_CHANNEL_NAME", "NAME_RANK", "broadcast_parameters", "fish_source", "zsh_source"),
    "cli_follow_urlparam",
    *("ShardedByS3Key", "record_wrapping"),
    *("sagemaker_tensorflow", "train_0", "train_0_0", "train_1_0", "train_2_0", "train_3_0", "train_RANK_EPOCH"),
}
OF_A_PERSON = {  # files and folders that are made or brought
    *("train.py", "prepare-data.py", "hello.py", "cluster.yaml", "job.yaml", "generate_trainer.py", "launch.py"),
    *("artifacts", "build", "dyntrain", "runs", "train"),
}


@cache
def files() -> set[str]:
    names = {path.relative_to(ROOT).as_posix() for room in ROOMS for path in (ROOT / room).rglob("*")}
    return {name for name in names if "__pycache__" not in name} | {path.name for path in ROOT.iterdir()}


def is_there(name: str, document: str) -> bool:
    """From the top, from beside the document, or as the end of one file's place, as `decisions/arrows.py` is."""
    name = name.rstrip("/").replace("CODE", "DT101").replace("NAME", "model")
    beside = (Path(document).parent / name).as_posix()
    return bool({name, beside} & files()) or any(each.endswith(f"/{name}") for each in files())


@pytest.mark.parametrize("document", documents())
def test_files_that_are_named_are_there(document: str) -> None:
    for span in spans(document):
        if NAMED.fullmatch(span) and not {span, span.split("/")[0]} & OF_A_PERSON:
            assert is_there(span, document), span


@pytest.mark.parametrize("document", [each for each in documents() if links(each)])
def test_links_lead_somewhere(document: str) -> None:
    for link in links(document):
        place, _, anchor = link.partition("#")
        target = (ROOT / document).parent / place if place else ROOT / document
        assert target.exists(), link
        if not anchor:
            continue
        slugs = {
            re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings(str(target.relative_to(ROOT)))
        }
        assert anchor in slugs, link


def referred_to(words: str) -> list[tuple[str, str]]:
    """(document, heading), as in `training/GUIDE.md`, "Two engines", or the other way round."""
    words = " ".join(words.split())
    behind = re.findall(r'"([^"]+)" in `([\w/]+\.md)`', words)
    return re.findall(r'`([\w/]+\.md)`, "([^"]+)"', words) + [(name, heading) for heading, name in behind]


@pytest.mark.parametrize("document", documents())
def test_headings_that_are_named_are_there(document: str) -> None:
    for name, heading in referred_to(prose(document)):
        assert heading in headings(name), f"{name}: {heading}"
    for heading in re.findall(r'(?:[Ss]ee|[Bb]elow:) "([^"]+)"', prose(document)):
        assert heading in headings(document), heading


def test_documents_that_messages_name_are_there_with_their_headings_and_in_the_wheel() -> None:
    kept = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]
    shipped = {pattern.removeprefix("!") for pattern in kept if pattern.startswith("!")}
    named = set()
    for path in (path for room in CODE for path in (ROOT / room).rglob("*.py")):
        for name, heading in re.findall(
            r"((?:\w+/)+[A-Z]+\.md)(?:, ([A-Z][a-z ]+))?", path.read_text(encoding="utf-8")
        ):
            if name != "training/rules/CODE.md":
                named.add(name)
                assert not heading or heading in headings(name), f"{path}: {heading}"
    assert named == shipped - {"training/rules/*.md"}


@cache
def words_of_the_code() -> set[str]:
    sources = [
        path for room in (*CODE, "tests", ".chalice") for path in (ROOT / room).rglob("*") if path.suffix in KINDS
    ]
    sources += [ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "app.py"]
    return {word for path in sources for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("document", documents())
def test_settings_statuses_alarms_and_events_that_are_named_are_there(document: str) -> None:
    """A name of the code, as it looks: `hook_cap_seconds`, `PREPARE_FAILED`, `LaunchesHeld`, `job.local_rank`."""
    named = {name for span in spans(document) for name in re.findall(r"(?<![\w/:$.-])[A-Za-z_][\w.]*\b", span)}
    words = {word for name in named for word in name.split(".") if NAME.fullmatch(word)} - OTHER_NAMES
    assert {word for word in words if not {word, xform_name(word)} & words_of_the_code()} == set()


@pytest.mark.parametrize("document", MOST_LINES)
def test_what_is_read_first_is_short(document: str) -> None:
    assert len(text(document).splitlines()) <= MOST_LINES[document]


@pytest.mark.parametrize("link", links("OPERATIONS.md"))
def test_a_part_begins_with_what_one_types_in_ten_lines(link: str) -> None:
    before, _, after = text(link).partition("```\n")
    assert len(before.splitlines()) <= 6
    assert len(after.partition("```")[0].splitlines()) <= 10


def test_every_document_can_be_come_by_from_the_readme() -> None:
    """The pages of the rules by `dyntrain check --explain`."""
    reached, ahead = set[str](), ["README.md"]
    while ahead:
        document = ahead.pop()
        reached.add(document)
        named = {name for name in spans(document) if name.endswith(".md")}
        named |= {str(((ROOT / document).parent / link).resolve().relative_to(ROOT)) for link in links(document)}
        ahead += [name for name in named if name in documents() and name not in reached]
    assert set(documents()) - reached == {each for each in documents() if each.startswith("training/rules/")}


def fields(document: str, heading: str) -> set[str]:
    """In the first column of the tables below the heading."""
    part = text(document).partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def test_the_reference_has_every_field_of_the_policy() -> None:
    assert fields("controller/REFERENCE.md", "The policy") == set(ClusterPolicy.model_fields)


def test_the_reference_has_every_field_that_the_template_takes_for_nodes() -> None:
    template = (ROOT / "node_bootstrap" / "cluster.template.yaml").read_text()
    pattern = yaml.load(template, yaml.BaseLoader)["Parameters"]["NodeFields"]["AllowedPattern"]  # noqa: S506
    assert fields("controller/REFERENCE.md", "The nodes' configuration") == set(
        re.search(r"\(\?:([\w|]+)\)", pattern)[1].split("|")
    )
