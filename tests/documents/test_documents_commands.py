"""Every command in the documents can be typed: the real command line takes it, AWS's models and the Makefile know it.

A document that is added later is covered without being listed.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import botocore.session
import click
import pytest
from botocore import xform_name
from dyntrain.controller.local.pace import patient
from dyntrain.training.launch.plan import is_for_cluster
from markdown import ROOT, Typed, commands, documents, shell_blocks, spans
from typed_commands import commands as every_command
from typed_commands import parsed_words

FILES = ("policy.json", "inputs.json", "hosts", "events.json")  # that people have
OF_A_TRAINING_SCRIPT = ("python", "python3")
ALL = [each for document in documents() for each in commands(document)]
OURS = dict(every_command())
AWS_CUSTOM = {  # of the AWS command line alone, which no model has
    ("s3", "cp"): {"--recursive"},
    ("cloudformation", "deploy"): {"--stack-name", "--template-file", "--capabilities", "--parameter-overrides"},
}
AWS_ANYWHERE = {"--query", "--output", "--region", "--profile", "--endpoint-url", "--count"}
FOREIGN = {  # options in sentences that are other programs' or a person's own script's
    *("--name", "--data_dir", "--ps_hosts", "--worker_hosts", "--job_name", "--task_index", "--kv-store"),
    *("--your", "--gpus", "--network", "--help"),
}


def starting_with(*programs: str, pasted: bool | None = None) -> list[Typed]:
    return [each for each in ALL if each.words[0] in programs and pasted in (None, each.pasted)]


def with_values(words: Iterable[str]) -> list[str]:
    """What a shell on a node makes of its variables; `...` and `--help` left out."""
    kept = [word for word in words if word not in ("...", "--help", "-h")]
    return [
        re.sub(r"^\$\w+_(COUNT|PATH)$", lambda each: {"COUNT": "2", "PATH": "hosts"}[each[1]], word) for word in kept
    ]


def options(words: tuple[str, ...]) -> set[str]:
    before = words[: words.index("--")] if "--" in words else words
    return {word.partition("=")[0] for word in before if re.match(r"--?[a-zA-Z]", word)}


def command_of(words: tuple[str, ...]) -> str:
    """The longest name of a command that `dyntrain` has. Fails where the next word is none of a group's."""
    path = ""
    for word in words[1:]:
        if word.startswith("-") and not path:
            pytest.fail(f"{' '.join(words)}: an option stands before the command")
        longer = f"{path} {word}".strip()
        if longer not in OURS:
            break
        path = longer
    rest = words[1 + len(path.split()) :]
    assert not (isinstance(OURS[path], click.Group) and rest), f"dyntrain {path} has no command {rest[0]}"
    return path


def taken_by(command: str) -> set[str]:
    return {name for each in OURS[command].params for name in (*each.opts, *each.secondary_opts)} | {"-h", "--help"}


@pytest.mark.parametrize("typed", starting_with("dyntrain", pasted=True), ids=str)
def test_a_pasted_command_is_taken(typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        Path(name).write_text("{}")
    assert "-h" in typed.words or parsed_words(with_values(typed.words[1:]))


@pytest.mark.parametrize("typed", starting_with("dyntrain"), ids=str)
def test_a_command_that_is_named_is_there_with_its_options(typed: Typed) -> None:
    command = command_of(typed.words)
    if command == "launch":
        is_for_cluster(with_values(typed.words[2:]), None)
    elif not OURS[command].context_settings.get("ignore_unknown_options"):
        assert options(typed.words) <= taken_by(command)


def test_a_command_that_the_code_names_is_there() -> None:
    """In messages, in helps and in docstrings. What a value follows stands for any command."""
    sources = [path for room in ("controller", "node_bootstrap", "training") for path in (ROOT / room).rglob("*.py")]
    named = {
        (word, path.name)
        for path in sources
        for word in re.findall(r"`dyntrain ([a-z][a-z_-]*)(?=[ `])", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert not {(word, name) for word, name in named if word not in OURS}


def test_an_option_in_a_sentence_is_one_of_ours() -> None:
    """Of a command, of what argparse reads, or listed as somebody else's."""
    known = {option for command in OURS for option in taken_by(command)} | FOREIGN
    sources = [
        path.read_text(encoding="utf-8") for room in ("training", ".chalice") for path in (ROOT / room).rglob("*.py")
    ]
    known.update(option for source in sources for option in re.findall(r'"(--[a-z-]+)"', source))
    named = {span.split()[0].partition("=")[0] for document in documents() for span in spans(document)}
    assert {each for each in named if re.fullmatch(r"--[a-z][a-z_-]+", each)} <= known


@pytest.mark.parametrize("typed", starting_with("aws"), ids=str)
def test_what_is_typed_to_aws_is_an_operation_with_its_members(typed: Typed) -> None:
    if len(typed.words) == 1:
        return
    service, name = typed.words[1:3]
    if (service, name) in AWS_CUSTOM:
        assert options(typed.words) <= AWS_CUSTOM[service, name] | AWS_ANYWHERE
        return
    values = [word for word in typed.words if "=" not in word]
    assert not any(re.match("https?://", value) for value in values), "version 1 of aws fetches an address"
    model = botocore.session.get_session().get_service_model(service)
    operations = {xform_name(each, "-"): each for each in model.operation_names}
    shape = model.operation_model(operations[name]).input_shape
    members = {f"--{xform_name(member, '-')}": member for member in (shape.members if shape else {})}
    given = options(typed.words)
    assert {f"--{each[5:]}" if each.startswith("--no-") else each for each in given} <= members.keys() | AWS_ANYWHERE
    if given or typed.pasted:
        needed = {xform_name(each, "-") for each in (shape.required_members if shape else [])}
        lacking = {each for each in needed if f"--{each}" not in given}
        assert not lacking - {"min-count", "max-count"}, f"{typed} lacks {lacking}"


@cache
def makefiles() -> str:
    read = (ROOT / "Makefile").read_text() + (ROOT / ".chalice" / "deploy.mk").read_text()
    return read.replace("$(TOOLS)", "build/tools")


@pytest.mark.parametrize("typed", starting_with("make"), ids=str)
def test_make_has_the_target_and_knows_its_variables(typed: Typed) -> None:
    for word in typed.words[1:]:
        variable, equals, value = word.partition("=")
        if not equals:
            target = rf"^(?:[\w-]+ )*{re.escape(word)}(?: [\w-]+)*:|^\w+ := {re.escape(word)}$"
            assert re.search(target, makefiles(), re.MULTILINE), word
            continue
        assert re.search(rf"\b{variable}\b", makefiles()), variable
        if variable == "BENCH" and value.islower():
            assert (ROOT / "tests" / "benchmarks" / f"bench_{value}.py").exists()


@cache
def help_of(module: str) -> str:
    command = [sys.executable, "-m", module, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=patient(30), check=True)
    return done.stdout


PYTHON = [each for each in ALL if re.search(r"(^|/)python3?$", each.words[0]) and len(each.words) > 1]


@pytest.mark.parametrize("typed", PYTHON, ids=str)
def test_what_python_runs_is_there(typed: Typed) -> None:
    program, *rest = typed.words[1:]
    if program == "-m":
        module, *rest = rest
        if module == "pytest":
            assert all((ROOT / word).exists() for word in rest if "/" in word)
        else:
            assert importlib.util.find_spec(module) is not None
            own = rest[: rest.index("python")] if "python" in rest else rest
            if module.startswith("dyntrain.") and options(tuple(own)):
                assert all(option in help_of(module) for option in options(tuple(own)))
            if module == "dyntrain.training.launch":
                is_for_cluster(with_values(rest), None)
    elif program == "/opt/dyntrain/launch.py":
        is_for_cluster(with_values(rest), None)
    elif program.startswith((".ci/", "tests/")):
        assert (ROOT / program).exists()


@pytest.mark.parametrize("typed", starting_with("pip"), ids=str)
def test_what_pip_installs_of_ours_has_these_extras(typed: Typed) -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extras in re.findall(r"dyntrain\[([a-z,]+)\]", " ".join(typed.words)):
        assert set(extras.split(",")) <= known.keys()


@pytest.mark.parametrize("document", [each for each in documents() if shell_blocks(each)])
def test_what_is_pasted_is_read_by_the_shell(document: str) -> None:
    for block in shell_blocks(document):
        done = subprocess.run(
            ["bash", "-n"], input=block, capture_output=True, text=True, timeout=patient(30), check=False
        )
        assert (done.returncode, done.stderr) == (0, ""), block
