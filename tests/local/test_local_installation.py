"""Embedded machines run an installed wheel of the checkout's present state, never the checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import dyntrain
import pytest
from dyntrain.controller.local.machines.installation import node_python, repository_root
from dyntrain.controller.local.pace import patient

ROOT = Path(__file__).parents[2]
PRINT_PLACES = "import dyntrain, dyntrain.training.job, sys; print(dyntrain.__file__); print(*sys.path, sep='\\n')"
MAKE = """
import sys
from pathlib import Path
from dyntrain.controller.local.machines.installation import build_environment
print(build_environment(Path(sys.argv[1])))
"""


def test_a_machine_s_python_has_the_wheel_and_nothing_of_the_checkout(tmp_path: Path) -> None:
    assert repository_root() == ROOT
    done = subprocess.run(
        [node_python(), "-c", PRINT_PLACES],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patient(30),
        check=True,
    )
    where, *path = done.stdout.splitlines()
    assert Path(where).is_relative_to(ROOT / "build" / "nodes")
    assert str(ROOT) not in path
    assert str(Path(dyntrain.__file__).parents[1]) not in path


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    root = tmp_path / "checkout"
    for name in ("controller", "node_bootstrap", "training", ".chalice"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("app.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, root / name)
    (root / "build").mkdir()
    (root / "build" / "tools").symlink_to(ROOT / "build" / "tools")
    return root


def ask(root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", MAKE, str(root)], stdout=subprocess.PIPE, text=True)


def test_one_environment_for_each_state_of_the_sources_however_many_ask(copy: Path) -> None:
    processes = [ask(copy), ask(copy)]
    first, second = [process.communicate(timeout=patient(30))[0].strip() for process in processes]
    assert first == second
    assert len([place for place in (copy / "build" / "nodes").iterdir() if place.is_dir()]) == 1
    (copy / "training" / "layout.py").write_text("CHANGED = True\n")
    after = ask(copy).communicate(timeout=patient(30))[0].strip()
    assert after != first
    changed = next(Path(after).glob("lib/*/site-packages/dyntrain/training/layout.py"))
    assert changed.read_text() == "CHANGED = True\n"
    assert Path(first).exists()  # what runs from it goes on
