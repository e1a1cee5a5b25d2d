"""What `make test` says of a change: a test that a busy moment turned must not keep the change out, and one that is
broken must not come in.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import second_look

TESTS = Path(second_look.__file__).parent
CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from second_look import add_option as pytest_addoption, note_failures as pytest_configure
"""
# Whoever is second in a process fails: alone, each passes.
TURNED = """
import pytest
SEEN = []
@pytest.mark.parametrize("which", ["one", "other"])
def test_turned(which):
    SEEN.append(which)
    assert len(SEEN) == 1, f"{which} was not\\nthe first"
"""
BROKEN = "def test_broken():\n    assert 1 + 1 == 3, 'sums'\n"
SETUP = """
import pytest
@pytest.fixture
def machine():
    raise RuntimeError("no machine")
def test_on_a_machine(machine):
    pass
"""


def look(folder: Path, *first: str, strict: bool = False, **files: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "STRICT"))}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # of a second each: only xdist has a part in this
    plugins = ("-p", "xdist.plugin", "-p", "no:cacheprovider")
    return subprocess.run(
        [sys.executable, TESTS / "second_look.py", "-q", *plugins, "--", *first],
        cwd=folder,
        env=environment | ({"STRICT": "1"} if strict else {}),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("spread", [(), ("-n", "2", "--dist", "loadfile")])
def test_what_passes_alone_is_green_and_is_named(tmp_path: Path, spread: tuple[str, ...]) -> None:
    done = look(tmp_path, *spread, turned=TURNED)
    assert done.returncode == 0, done.stdout + done.stderr
    named = "test_turned.py::test_turned[other]: AssertionError: other was not"
    assert done.stdout.splitlines()[-2:] == ["Passed only alone", f"passed only alone: {named}"]
    assert (tmp_path / second_look.NOTED).read_text().endswith(f" {named}\n")
    assert look(tmp_path, *spread, turned=TURNED).returncode == 0
    assert (tmp_path / second_look.NOTED).read_text().count(named) == 2, "it is named twice, and to be mended"


def test_what_fails_again_is_red_whatever_else_passed_alone(tmp_path: Path) -> None:
    done = look(tmp_path, turned=TURNED, broken=BROKEN)
    assert done.returncode == 1
    assert "passed only alone: test_turned.py::test_turned[other]" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("failed twice: test_broken.py::test_broken: AssertionError: sums")


def test_a_set_up_that_failed_is_a_failure(tmp_path: Path) -> None:
    done = look(tmp_path, setup=SETUP)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "failed twice: test_setup.py::test_on_a_machine: RuntimeError: no machine"


def test_a_process_that_died_under_a_test_is_looked_at_again(tmp_path: Path) -> None:
    done = look(
        tmp_path, "-n", "2", died="import os\ndef test_died():\n    os._exit(3)\n", fine="def test_fine(): pass\n"
    )
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("failed twice: test_died.py::test_died: ")


def test_strict_has_no_second_look(tmp_path: Path) -> None:
    done = look(tmp_path, strict=True, turned=TURNED)
    assert done.returncode == 1
    assert "look" not in done.stdout


def test_too_many_failures_are_no_chance(tmp_path: Path) -> None:
    many = TURNED.replace('["one", "other"]', f"range({second_look.AT_MOST + 2})")
    done = look(tmp_path, turned=many)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "9 tests failed: too many for a second look, which 8 have"
    assert look(tmp_path, turned=many.replace("range(10)", "range(9)")).returncode == 0


@pytest.mark.parametrize(
    ("files", "code"),
    [({"wrong": "import nothing_of_this_name\n"}, 2), ({"empty": ""}, 5), ({"fine": "def test_fine(): pass\n"}, 0)],
)
def test_the_rest_is_as_pytest_says(tmp_path: Path, files: dict[str, str], code: int) -> None:
    assert look(tmp_path, **files).returncode == code
