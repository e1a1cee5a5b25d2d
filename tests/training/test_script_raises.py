"""A script of a real job that raises in the body of its loop: without its traceback in the report, people look for it
in the logs of machines that are gone, and the job starts again until its restarts are used up.
"""

from __future__ import annotations

import sys
from pathlib import Path

import idioms
from job_bed import JobBed

SCRIPT = Path(idioms.__file__).with_name("mortal_idiom.py")
COUNTS = f"import sys; sys.path.insert(0, {str(SCRIPT.parent)!r}); import probed_scripts as scripts; " + (
    "scripts.classes_counted_in_the_batch()"
)


def failed(folder: Path, *command: str) -> JobBed:
    """A job of two workers that has ended by its script's failure."""
    bed = JobBed(folder, [sys.executable, *command], workers=2)
    try:
        for letter in "AB":
            bed.add_node(letter, base=True)
        bed.want("AB")
        bed.wait_for(lambda: bed.events("failed"), 90, "the job ends")
    finally:
        bed.close()
    return bed


def test_t2_a_real_job_is_refused_by_what_its_workers_find_in_the_first_batch(tmp_path: Path) -> None:
    """Class weights that are counted in it: MXNet's record does not show them."""
    bed = failed(tmp_path, "-c", COUNTS)
    (end,) = bed.events("failed")
    assert "the gradients of 12 samples are not those of 5 and of 7 of them together" in end["reason"]


def test_t7_a_bug_in_the_body_of_the_loop_ends_a_real_job_the_second_time_with_its_traceback(tmp_path: Path) -> None:
    bed = failed(tmp_path, str(SCRIPT), "raising", "0", "99", str(tmp_path))
    (end,) = bed.events("failed")
    assert end["reason"] == "the script fails at step 4 on every worker: KeyError: 4"
    (raised,) = bed.events("script_failed")
    assert "in raising" in raised["traceback"]
    assert len(bed.events("restart")) <= 1
    for log in tmp_path.glob("worker-*.log"):
        assert "was left before its end" not in log.read_text(), "it raised, and did not break off"
