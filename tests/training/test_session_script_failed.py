"""A bug in the script fails every worker at the same step; it ends the job with its traceback and burns no restarts."""

from __future__ import annotations

from dyntrain.training import events
from dyntrain.training.protocol.messages import START, ScriptFailed
from dyntrain.training.session.job.trouble import FailureCounts
from session_driver import A, B, Driver, announced

AB = ("a", "b")


def test_t7_the_same_error_on_every_worker_at_the_same_step_ends_the_job_the_second_time() -> None:
    trouble = FailureCounts()
    assert not trouble.record_exception("a", 5, "KeyError: 'x'", AB)
    assert not trouble.record_exception("b", 5, "KeyError: 'x'", AB), "once may be an accident of the data's storage"
    trouble.reset_formations()
    assert not trouble.record_exception("b", 5, "KeyError: 'x'", AB)
    assert trouble.record_exception("a", 5, "KeyError: 'x'", AB)


def test_t7_numbers_of_a_share_do_not_make_errors_of_one_script_different() -> None:
    """A written batch size: `reshape((64, -1))` is another sentence on each worker, and was twenty restarts."""
    trouble = FailureCounts()
    for times in range(2):
        assert not trouble.record_exception("a", 5, f"ValueError: size 21 into shape (8,{3 + times})", AB)
        ends = trouble.record_exception("b", 5, f"ValueError: size 2{times} into shape (8,3)", AB)
        trouble.reset_formations()
    assert ends


def test_t7_errors_that_differ_or_move_on_or_spare_somebody_do_not_end_the_job() -> None:
    trouble = FailureCounts()
    for step, error in ((5, "one"), (9, "one"), (9, "other")):
        assert not trouble.record_exception("a", step, error, AB)
        assert not trouble.record_exception("b", step, error, AB)
        trouble.reset_formations()
    for _ in range(3):
        assert not trouble.record_exception("a", 12, "one", AB)
        trouble.reset_formations()
    assert not trouble.record_exception("a", 12, "one", AB)
    assert not trouble.record_exception("b", 13, "one", AB)


def test_t7_the_report_carries_the_traceback_and_the_log_has_it_once(driver: Driver) -> None:
    """Else people look for it in the logs of machines that are gone."""
    trace = "Traceback (most recent call last):\n" + "x" * 5000 + "\nKeyError: 'label'\n"

    def raises() -> None:
        number = driver.session.job.number
        failure = ScriptFailed(generation=number, position=START, error="KeyError: 'label'", traceback=trace)
        for name in (A, B):
            driver.do("script_failed", name, failure)

    raises()
    report = driver.session.report(driver.now)
    assert report.traceback.endswith("KeyError: 'label'\n")
    assert len(report.traceback) <= 2000
    driver.session.job.trouble.reset_formations()
    raises()
    assert len(announced(driver.orders, events.ScriptFailed)) == 1
    (failed,) = announced(driver.orders, events.Failed)
    assert "Traceback" not in failed.reason
    report = driver.session.report(driver.now)
    assert (report.state, report.reason) == ("failed", failed.reason)
    assert "KeyError: 'label'" in report.traceback
