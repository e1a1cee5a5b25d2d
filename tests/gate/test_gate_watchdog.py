"""A test that hangs where no signal reaches it ends its process and not the run, and it is said where it hung."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import second_look
import watchdog
from dyntrain.controller.local.pace import patient

TESTS = Path(second_look.__file__).parent
CONFTEST = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
import pytest, pytest_timeout, watchdog
from second_look import add_option as pytest_addoption, note_failures
watchdog.AFTER = 1.5
def pytest_configure(config):
    note_failures(config)
    config.pluginmanager.register(watchdog)
@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item, settings):
    watchdog.begin(item, watchdog.bound(settings.timeout))
    return pytest_timeout.pytest_timeout_set_timer(item, settings)
"""
# Each hangs in a process that has gone through another test, and passes alone.
HANGS = """
import ctypes, signal, threading, pytest
SEEN = []
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
def in_c():
    ctypes.CDLL(None).sleep(3600)
def in_c_and_holds_the_interpreter():
    ctypes.PyDLL(None).sem_wait(ctypes.create_string_buffer(64))
@pytest.fixture
def cleaned_up():
    yield
    if len(SEEN) == 3:
        threading.Event().wait()
def test_before(): SEEN.append(0)
@pytest.mark.timeout(1.5)
@pytest.mark.parametrize("hangs", {hangs})
def test_hangs(hangs, cleaned_up):
    SEEN.append(1)
    if len(SEEN) > 1:
        hangs()
def test_after(): pass
"""
LOADFILE = ("--dist", "loadfile")
FAILS_AND_HANGS = "lambda: (SEEN.append(2), pytest.fail('it has not come'))"


@pytest.mark.parametrize(
    ("hangs", "place"),
    [
        ("in_c", "in in_c"),
        ("in_c_and_holds_the_interpreter", "in in_c_and_holds_the_interpreter"),
        (FAILS_AND_HANGS, "in cleaned_up"),
    ],
    ids=["in C", "in C with the interpreter", "in clean-up"],
)
def test_a_run_goes_on_without_a_test_that_hangs(tmp_path: Path, hangs: str, place: str) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_some.py").write_text(HANGS.replace("{hangs}", f"[{hangs}]"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "STRICT"))}
    done = subprocess.run(
        [sys.executable, TESTS / "second_look.py", "-q", "-p", "no:cacheprovider", "--", "-n", "2", *LOADFILE],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=patient(120),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout, "one after it, and itself in the process that took the place"
    assert re.search(r"\npassed only alone: test_some.py::test_hangs\[.*\]: (.* crashed while|Failed: it)", done.stdout)
    assert "Timeout (0:0" in done.stderr
    assert place in done.stderr


@pytest.mark.parametrize(("slower", "says", "bound"), [(1.5, 60, 90), (100, 60, 900), (100, 600, 2400)])
def test_a_test_may_take_a_quarter_of_an_hour_at_most_or_four_times_what_it_says(
    monkeypatch: pytest.MonkeyPatch, slower: float, says: float, bound: float
) -> None:
    monkeypatch.setattr(watchdog, "patient", lambda seconds: slower * seconds)
    assert watchdog.bound(says) == bound
