"""A cluster that waits for a person's launch: one at a time, told to all nodes, safe over the coordinator's end."""

from __future__ import annotations

from dyntrain.training import journal
from dyntrain.training.protocol.node_messages import EndRequest, Launch, LaunchAnswer, Launched, Retire
from dyntrain.training.session.job.state import Phase
from dyntrain.training.session.orders import Journal, Order, StopCoordinator, ToNode
from session_driver import A, B, C, Driver, come_back, forms

FIRST = Launch(request="first", command=("python", "train.py"), directory="/volume")
OTHER = FIRST.model_copy(update={"request": "other"})


def waiting() -> Driver:
    driver = Driver(workers=2, waits=True)
    for name in (A, B):
        driver.node(name)
    driver.want(A, B)
    return driver


def answers(orders: list[Order]) -> list[str]:
    return [o.message.refused for o in orders if isinstance(o, ToNode) and isinstance(o.message, LaunchAnswer)]


def receivers(orders: list[Order], kind: type[object]) -> list[str]:
    return [order.instance_id for order in orders if isinstance(order, ToNode) and isinstance(order.message, kind)]


def test_a_launch_is_on_record_before_any_node_hears_of_it() -> None:
    driver = waiting()
    assert driver.session.report(driver.now).reason == "waits for a launch on the master"
    orders = driver.do("launch_requested", A, FIRST)
    assert orders[0] == Journal(journal.JobLaunched(launch=FIRST, at=driver.now))
    assert (receivers(orders, Launched), answers(orders)) == ([A, B], [""])
    again = driver.do("launch_requested", A, FIRST)
    assert (len(again), answers(again)) == (1, [""]), "its answer was lost: it is launched once"
    come_back(driver, A, B)
    assert driver.session.job.launch == FIRST


def test_what_cannot_be_launched_is_refused_with_a_sentence() -> None:
    driver = waiting()
    driver.node(C, base=False)
    assert "log in on the master" in answers(driver.do("launch_requested", C, FIRST))[0]
    driver.do("launch_requested", A, FIRST)
    assert "trains already: python train.py" in answers(driver.do("launch_requested", A, OTHER))[0]
    configured = Driver(workers=1)
    configured.node(A)
    assert "TrainingCommand" in answers(configured.do("launch_requested", A, FIRST))[0]


def test_a_launch_long_after_the_nodes_came_waits_for_all_their_workers() -> None:
    driver = waiting()
    driver.now += 10 * driver.options.clocks.patience
    driver.do("tick")
    driver.do("launch_requested", A, FIRST)
    assert forms(driver.worker(A) + driver.do("tick")) == {}, "the first worker does not begin alone"
    assert set(forms(driver.worker(B))) == {A, B}


def test_a_person_ends_the_launch_of_their_own_terminal_alone() -> None:
    driver = waiting()
    driver.do("launch_requested", A, FIRST)
    driver.worker(A)
    driver.worker(B)
    driver.form(A, B)
    assert "not in force" in answers(driver.do("end_requested", A, EndRequest(request="other")))[0]
    orders = driver.do("end_requested", A, EndRequest(request="first"))
    assert receivers(orders, Retire) == [A, B]
    assert isinstance(orders[-1], StopCoordinator)
    assert driver.session.launch is None, "a node that connects once more would start a worker for nothing"
    late = driver.do("launch_requested", A, OTHER)
    assert "just ending" in answers(late)[0]
    report = driver.session.report(driver.now)
    assert (report.state, report.reason) == ("paused", "the launch has failed; a person ended it"), (
        "over would have the controller release the nodes"
    )


def refusal_of(orders: list[Order]) -> tuple[bool, bool]:
    """Whether it was refused, and whether it is worth asking again in a moment."""
    (answer,) = [o.message for o in orders if isinstance(o, ToNode) and isinstance(o.message, LaunchAnswer)]
    return bool(answer.refused), answer.passing


def test_only_the_end_of_the_launch_before_is_worth_waiting_for() -> None:
    """A terminal asks again by itself then; asked again of a job that trains, it would ask for days."""
    driver = waiting()
    assert refusal_of(driver.do("launch_requested", "i-gone", FIRST)) == (True, False), (
        "a node whose hello is not known"
    )
    assert refusal_of(driver.do("launch_requested", A, FIRST)) == (False, False)
    assert refusal_of(driver.do("launch_requested", A, OTHER)) == (True, False)
    driver.do("end_requested", A, EndRequest(request="first"))
    assert refusal_of(driver.do("launch_requested", A, OTHER)) == (True, True)
    assert refusal_of(driver.do("launch_requested", A, FIRST)) == (False, False), "it was launched, and is over"
    configured = Driver(workers=2)
    configured.train(A, B)
    for epoch in (1, 2, 3):
        configured.check_in(A, B, epoch=epoch)
    assert configured.session.job.phase is Phase.OVER
    assert refusal_of(configured.do("launch_requested", A, FIRST)) == (True, False), "no other job follows"


def test_a_launch_is_ended_once_however_often_that_is_asked() -> None:
    driver = waiting()
    driver.do("launch_requested", A, FIRST)
    driver.do("end_requested", A, EndRequest(request="first"))
    again = driver.do("end_requested", A, EndRequest(request="first"))
    assert (len(again), answers(again)) == (1, [""])
