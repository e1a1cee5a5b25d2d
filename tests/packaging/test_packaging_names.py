"""`import mxnet` in whatever program of an environment with dyntrain: MXNet wants names that NumPy has given up. Every
Python there starts with it, so it may cost nothing, and say nothing where something is missing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from dyntrain.controller.local.machines.installation import node_python
from dyntrain.controller.local.pace import patient
from packaging_environment import Environment

Fresh = Callable[..., Environment]
PLAIN = "import mxnet\nprint(mxnet.nd.ones(2).sum().asscalar())"
ABOVE = "import mxnet\nfrom dyntrain import ElasticJob\nprint(ElasticJob.join().size)"
LOADED = "import sys\nprint(sorted(sys.modules))"


def by(python: str, source: str, here: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *options, "-c", source], cwd=here, capture_output=True, text=True, timeout=patient(60), check=False
    )


@pytest.mark.parametrize(("source", "output"), [(PLAIN, "2.0\n"), (ABOVE, "1\n")], ids=["alone", "above dyntrain"])
def test_mxnet_is_imported_as_in_any_environment(fresh: Fresh, tmp_path: Path, source: str, output: str) -> None:
    done = fresh("node,cpu").run("python", "-c", source, here=tmp_path)
    assert done.stdout == output, done.stderr


@pytest.mark.parametrize("python", [lambda: sys.executable, node_python], ids=["a checkout's", "a node's"])
def test_so_it_is_in_a_checkout_and_in_what_a_node_prepares_with(python: Callable[[], str], tmp_path: Path) -> None:
    done = by(python(), PLAIN, tmp_path)
    assert done.stdout == "2.0\n", done.stderr


def test_where_mxnet_is_not_imported_a_python_starts_as_before() -> None:
    site, without = (set(eval(by(sys.executable, LOADED, Path("/"), *o).stdout)) for o in ([], ["-S"]))  # noqa: S307
    ours = {name for name in site - without if name.partition(".")[0] in ("dyntrain", "typing", "numpy", "mxnet")}
    assert ours == {"dyntrain", "dyntrain.numpy_names"}


def test_to_look_for_mxnet_does_not_import_numpy() -> None:
    source = "import sys\nfrom importlib.util import find_spec\nprint(find_spec('mxnet').name, 'numpy' in sys.modules)"
    assert by(sys.executable, source, Path("/")).stdout == "mxnet False\n"


def test_an_environment_without_mxnet_says_what_it_said(fresh: Fresh, tmp_path: Path) -> None:
    done = fresh().run("python", "-c", PLAIN, here=tmp_path)
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'mxnet'"


def test_what_is_left_of_a_removed_package_makes_no_noise(fresh: Fresh, tmp_path: Path) -> None:
    place = tmp_path / "environment"
    shutil.copytree(fresh().place, place, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    assert (packages / "dyntrain-numpy-names.pth").exists()
    for text in (None, "raise RuntimeError('broken')\n"):
        shutil.rmtree(packages / "dyntrain", ignore_errors=True)
        if text is not None:
            (packages / "dyntrain").mkdir()
            (packages / "dyntrain" / "__init__.py").write_text(text)
        done = Environment(place).run("python", "-c", "print('starts')", here=tmp_path)
        assert (done.stdout, done.stderr) == ("starts\n", "")
