"""A script of a real job that raises in the body of its loop: without its traceback in the report, people look for it
in the logs of machines that are gone, and the job starts again until its restarts are used up.
"""

from __future__ import annotations

import sys
from pathlib import Path

import idioms
from job_bed import JobBed

SCRIPT = Path(idioms.__file__).with_name("mortal_idiom.py")


def test_t7_a_bug_in_the_body_of_the_loop_ends_a_real_job_the_second_time_with_its_traceback(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "raising", "0", "99", str(tmp_path)]
    bed = JobBed(tmp_path, command, workers=2)
    try:
        for letter in "AB":
            bed.add_node(letter, base=True)
        bed.want("AB")
        bed.wait_for(lambda: bed.events("failed"), 90, "the job ends")
    finally:
        bed.close()
    (failed,) = bed.events("failed")
    assert failed["reason"] == "the script fails at step 4 on every worker: KeyError: 4"
    (raised,) = bed.events("script_failed")
    assert "in raising" in raised["traceback"]
    assert len(bed.events("restart")) <= 1
    for log in tmp_path.glob("worker-*.log"):
        assert "was left before its end" not in log.read_text(), "it raised, and did not break off"
