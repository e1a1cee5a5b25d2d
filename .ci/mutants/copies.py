"""A copy of a checkout for trying breaks; the checkout itself is never changed."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = ("bare", "e2e", "horovod", "jobs", "matrix")  # markers of expensive tests, and of those of the whole
OBVIOUS = ("controller/core/decisions/windows.py", "tests/controller/test_controller_leave_windows.py")
PROOF_SECONDS = 300.0
CLEAN_SECONDS = 3600.0
UNENDED = "did not come to an end"
NOTHING_RAN = 5  # pytest's exit code where all tests of the files were left out
LINK = "import sys; sys.path.insert(0, 'training/face'); from hatch_build import *; link(Path.cwd())"


class Copy:
    """A copy of a checkout."""

    def __init__(self, tree: Path, place: Path) -> None:
        self.place = place
        self._python = next(str(path) for root in (tree, ROOT) if (path := root / ".venv/bin/python").exists())
        command = ["git", "-C", str(tree), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(command, capture_output=True, check=True, text=True).stdout.split("\0"):
            if (tree / name).is_file():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(tree / name, place / name)
        subprocess.run([self._python, "-c", LINK], cwd=place, check=True)
        (place / "build" / "tools").symlink_to(tree / "build" / "tools")
        pytest_settings = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]
        markers = {
            line.partition(":")[0] for line in pytest_settings["ini_options"]["markers"]
        }  # unknown markers are errors there
        self._selected = f"not ({' or '.join(marker for marker in LEFT_OUT if marker in markers)})"
        path = str(place / "build" / "path")  # before the environment's path, which leads to the checkout
        self._mark = f"PYTHONPATH={path}"
        self._variables = {**os.environ, "PYTHONPATH": path}
        self._variables.setdefault("DYNTRAIN_AWS_CLI", str(tree / "build" / "tools" / "aws" / "bin" / "aws"))
        self._file_time = 1_000_000_000

    def test(self, tests: Sequence[str], seconds: float, *options: str) -> tuple[bool, str]:
        """Run tests; returns whether all passed, and the output or that they did not end."""
        with tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as scratch:
            command = [self._python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", self._selected]
            command += [f"--basetemp={scratch}/t", "--hypothesis-seed=0", *options, *tests]
            variables = {**self._variables, "HYPOTHESIS_STORAGE_DIRECTORY": f"{scratch}/h"}  # not shared between breaks
            with open(f"{scratch}/output", "w+b") as out:  # no pipe, which a left-over process would hold open
                try:
                    result = subprocess.run(
                        command,
                        cwd=self.place,
                        env=variables,
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=out,
                        timeout=seconds,
                        check=False,
                    )
                except subprocess.TimeoutExpired:
                    return False, f"{UNENDED} in {seconds:.0f} s"
                finally:
                    self.end_all()
                out.seek(0)
                return result.returncode in (0, NOTHING_RAN), out.read().decode(errors="replace")

    def end_all(self) -> None:
        """Kill all processes that were started here."""
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if self._mark.encode() in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)

    @contextlib.contextmanager
    def broken(self, file: str, source: str) -> Iterator[None]:
        """Write the broken source while the block runs."""
        whole = (self.place / file).read_text(encoding="utf-8")
        try:
            self._write(file, source)
            yield
        finally:
            self._write(file, whole)

    def _write(self, file: str, source: str) -> None:
        """Write a file with a new modification time: compiled files are recognised by time and size."""
        self._file_time += 10
        (self.place / file).write_text(source, encoding="utf-8")
        os.utime(self.place / file, (self._file_time, self._file_time))

    def prove(self) -> None:
        """Prove that the copy's code is tested: a break of the same length is detected, and gone when it is undone."""
        file, test = OBVIOUS
        source = (self.place / file).read_text(encoding="utf-8")
        with self.broken(file, source.replace("import annotations", "import annotationz", 1)):
            if self.test([test], PROOF_SECONDS)[0]:
                sys.exit(f"{self.place}: the tests of an obvious break are green")
        good, output = self.test([test], PROOF_SECONDS)
        if not good:
            sys.exit(f"{self.place}: the tests are red after a break was taken back\n{output}")

    def clean(self, tests: Sequence[str], jobs: int) -> dict[str, float]:
        """Seconds of each test file without a break. Ends the program if tests fail."""
        times = self.place / "build" / "times.xml"
        good, output = self.test(tests, CLEAN_SECONDS, "-n", str(jobs), "--dist", "loadfile", f"--junitxml={times}")
        if not good:
            sys.exit(f"the tests are red without any break\n{output}")
        seconds = dict.fromkeys(tests, 0.0)
        for case in ElementTree.parse(times).iter("testcase"):  # noqa: S314, pytest has just written it
            name = case.get("classname", "").replace(".", "/")
            for test in tests:
                if f"{name}/".startswith(f"{test.removesuffix('.py')}/"):  # or of a class in it
                    seconds[test] += float(case.get("time", "0"))
        return seconds
