import sys

sys.path.insert(0, "/work/helpers/slots/tests/training")
from test_session_schedules import *
from test_session_schedules import schedules as S


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=300, deadline=None)
@given(schedule=S)
def test_replacement(engine, schedule):
    world = World("ab", "cd", engine=engine, slots=2)
    play(world, schedule, faults_and_replacement)
    world.promote("c")
    calm(world, "bcd", "ac")
    check(world)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=200, deadline=None)
@given(schedule=S)
def test_three(engine, schedule):
    world = World("a", "bc", engine=engine, slots=3, epochs=2)
    play(world, schedule)
    calm(world, "abc")
    check(world)


for name in list(globals()):
    if name.startswith("test_w") or name.startswith("test_t2"):
        del globals()[name]
