"""`dyntrain local up -- COMMAND`: a person's command runs where the person is, and a mistake in it is told at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from dyntrain.controller.cli.main import main
from dyntrain.controller.local.guide import program_folder
from dyntrain.controller.local.own_command import CommandNotFound, bare_machine_command, check_command, script_of
from dyntrain.controller.local.pace import patient
from dyntrain.controller.local.stack import PYTHON

PATH = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin:/bin"])


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python train.py --epochs 3", "train.py"),
        ("/opt/venv/bin/python3.11 -u -X dev -W ignore::Warning train.py", "train.py"),
        ("python -Xdev -Wdefault -- -odd.py", "-odd.py"),
        ("python --check-hash-based-pycs never train.py", "train.py"),
        ("bash -eu -o pipefail run.sh train.py", "run.sh"),
        ("sh +o errexit run.sh", "run.sh"),
        ("python -m train", None),
        ("python -um train", None),
        ("python -c 1 train.py", None),
        ("bash -ec 'exit 0' train.py", None),
        ("python - train.py", None),
        ("python", None),
        ("./train.py data.csv", None),
        ("torchrun train.py", None),
    ],
)
def test_the_script_of_a_command_is_what_its_interpreter_would_open(command: str, script: str | None) -> None:
    """What is no file must not be missed as one: the command would be refused for nothing."""
    assert script_of(command.split()) == script


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("python trian.py", "no trian.py in {here}"),
        ("python sub/other.py", "no sub/other.py in {here}"),
        ("python /nowhere/train.py", "no /nowhere/train.py"),
        ("pyhton train.py", "no program pyhton on PATH"),
        ("./run.sh", "no program ./run.sh in {here}"),
        ("./train.py", "chmod +x ./train.py"),
        ("/nowhere/python train.py", "no program /nowhere/python"),
    ],
)
def test_what_a_command_names_and_is_not_there_is_refused_before_anything_starts(
    command: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the cluster comes up in half a minute, and its workers die again and again in a log that nobody reads."""
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["local", "up", "--port", "0", "--", *command.split()])
    assert result.exit_code == 1
    (line,) = result.output.strip().splitlines()
    assert named.format(here=tmp_path) in line


def test_what_is_there_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "train.py").touch()
    (tmp_path / "run.sh").touch(mode=0o755)
    for command in ("python sub/train.py", "python -m sub.train", "./run.sh", "sh run.sh", f"{sys.executable} sub"):
        check_command(command.split(), tmp_path, PATH)


def test_bare_machines_run_what_is_on_their_volume_and_say_so_where_it_is_not(tmp_path: Path) -> None:
    """They are systems of their own, which see nothing else of this host."""
    (tmp_path / "train.py").touch()
    wanted = (PYTHON, "train.py")
    assert bare_machine_command(["python", "train.py"], tmp_path) == wanted
    assert bare_machine_command(["python", "/myEFSvolume/train.py"], tmp_path)[1:] == ("/myEFSvolume/train.py",)
    with pytest.raises(CommandNotFound, match=r"train\.py is not in it: put the script into DIRECTORY/shared, and"):
        bare_machine_command(["python", "train.py"], None)
    with pytest.raises(CommandNotFound, match=f"other.py is not in it: put the script into {tmp_path}"):
        bare_machine_command(["python", "other.py"], tmp_path)
    with pytest.raises(CommandNotFound, match="is not in it"):
        bare_machine_command(["python", str(tmp_path / "train.py")], tmp_path)


def test_a_command_for_bare_machines_is_refused_before_their_image_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    result = CliRunner().invoke(main, ["local", "up", "--machines", "bare", "--", "python", "train.py"])
    assert result.exit_code == 1
    assert "bare machines see only the shared volume" in result.output


def test_the_pasted_path_finds_the_dyntrain_that_runs(tmp_path: Path) -> None:
    """Whose environment is not activated was told: command not found."""
    own = tmp_path / "it's $HOME" / "bin"
    own.mkdir(parents=True)
    (own / "dyntrain").write_text("#!/bin/sh\necho found\n")
    (own / "dyntrain").chmod(0o755)
    assert program_folder(str(own / "dyntrain"), "/usr/bin/python3") == own
    assert program_folder("/somewhere/dyntrain/__main__.py", "/venv/bin/python") == Path("/venv/bin")
    assert program_folder("dyntrain", "/venv/bin/python") == Path("/venv/bin"), "no such file here"


def test_a_folder_with_any_name_comes_to_the_machines_as_it_is(tmp_path: Path) -> None:
    """It goes through JSON within JSON within a template."""
    from dyntrain.controller.local.up import template_parameters

    folder = tmp_path / 'my "own" ${Folder} ä\\b'
    assert json.loads("{" + template_parameters(folder)["NodeFields"] + "}") == {"working_directory": str(folder)}
    assert template_parameters(None) == {}
    assert template_parameters(None, 2) == {"NodeFields": '"workers_per_node": 2'}


@pytest.mark.parametrize("shell", ["sh", "bash", "zsh"])
def test_a_shell_takes_the_line_with_the_path(shell: str, tmp_path: Path) -> None:
    from dyntrain.controller.local.guide import path_line

    own = tmp_path / "it's $HOME & more"
    own.mkdir()
    (own / "dyntrain").write_text("#!/bin/sh\necho found\n")
    (own / "dyntrain").chmod(0o755)
    try:
        done = subprocess.run(
            [shell, "-c", f"{path_line(own)}\ndyntrain && ls / > /dev/null"],
            capture_output=True,
            text=True,
            timeout=patient(20),
            check=False,
            env={"PATH": "/usr/bin:/bin"},
        )
    except FileNotFoundError:
        pytest.skip(f"no {shell} here")
    assert (done.stdout, done.returncode) == ("found\n", 0), done.stderr
