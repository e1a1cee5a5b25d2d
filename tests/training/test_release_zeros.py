"""The zeros that free those whom a lost worker keeps waiting: all that survivors have asked for is answered, else one
of them waits for ever; and hardly any are pushed that were not owed, else a kill costs the others whole exchanges.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Queue

from dyntrain.controller.local.pace import patient
from dyntrain.training.engine.store import Part
from dyntrain.training.protocol.messages import Abort, Position, Pump, Pumped, StepStatus, StepVerdict
from dyntrain.training.protocol.wire import FromWorker
from dyntrain.training.worker.membership.step import StepGuard
from dyntrain.training.worker.membership.window import Key, share_of, windows_of
from dyntrain.training.worker.membership.zeros import Zeros
from fake_servers import FakeEngine, FakeStore, Gradient, Servers
from hypothesis import given
from hypothesis import strategies as st

AT = Position(epoch=0, offset=0, step=0)
SMALL = [("0", (2,), "float32"), ("1", (3,), "float32"), ("2", (1,), "float64")]
LARGE = [*SMALL, ("3", (2_500_000,), "float32")]  # of three parts


class Member:
    """A survivor, without threads: its zeros, and what it waits for."""

    def __init__(self, servers: Servers, name: str) -> None:
        self.servers, self.name = servers, name
        self.store = FakeStore(servers, name)
        self.zeros = Zeros(self.store)  # type: ignore[arg-type]
        self.gradients: dict[int, Gradient] = {}
        self.rounds = 0

    def push(self) -> None:
        for key in self.servers.keys:
            self.gradients[key.number] = Gradient()
            self.store.push(key, self.gradients[key.number])

    def mend(self, share: int, shares: int, lost: int) -> None:
        mine = share_of(self.servers.keys, share, shares)
        watches = {number: self.store.watch(gradient) for number, gradient in self.gradients.items()}

        def has(key: Key, part: Part) -> bool:
            return not watches or watches[key.number]() or (len(key.parts) > 1 and self.store.has_answer(part))

        self.rounds += self.zeros.push_until_answered(mine, lost, self.servers.workers, has, self.pause, 3)
        assert self.rounds < 50, "it would go on for ever"

    def pause(self) -> None:
        """For answers that are on their way."""


def freed(
    servers: Servers, waiting: int, outside: int, lost: int, order: list[int], dies: Callable[[], object]
) -> list[Member]:
    """All that the coordinator would order, in this order of the survivors; some one `dies` once they have pushed."""
    members = [Member(servers, f"survivor {number}") for number in range(waiting + outside)]
    for member in members[:waiting]:
        member.push()
    dies()
    for member in members[waiting:]:
        member.zeros.push_once(servers.keys)
    for place in order:
        if place < len(members):
            members[place].mend(place, len(members), lost)
    return members


@given(st.integers(1, 4), st.integers(0, 3), st.integers(1, 3), st.permutations(range(7)), st.data(), st.booleans())
def test_t7_survivors_have_all_answers_and_none_waits_for_a_time(
    waiting: int, outside: int, lost: int, order: list[int], data: st.DataObject, large: bool
) -> None:
    """Wherever the lost ones were in their pushes."""
    servers = Servers(LARGE if large else SMALL, waiting + outside + lost)
    gone = [FakeStore(servers, f"lost {number}") for number in range(lost)]
    for store in gone:
        for key in data.draw(st.lists(st.sampled_from(servers.keys), unique=True), label="pushed by a lost one"):
            store.push(key, Gradient())
    members = freed(servers, waiting, outside, lost, order, lambda: [store.die() for store in gone])
    names = {member.name for member in members}
    assert servers.open(names) == []
    assert not any(member.rounds for member in members)
    for key in servers.keys:
        for part in key.parts:
            owed = lost - sum(servers.count(f"lost {number}", part) for number in range(lost))
            pushed = sum(servers.count(name, part) for name in names)
            assert pushed == len(members) + owed, "one for each survivor, and what is owed: not one too many"


@given(st.integers(1, 4), st.integers(0, 3), st.integers(1, 2), st.permutations(range(7)), st.data())
def test_t7_what_a_lost_worker_sent_last_may_come_when_others_push_in_its_place_already(
    waiting: int, outside: int, lost: int, order: list[int], data: st.DataObject
) -> None:
    """A machine's own buffers, or a worker that lives and is cut off."""
    servers = Servers(LARGE, waiting + outside + lost)
    parts = [key.parts[0] for key in servers.keys]  # those behind are pushed upon an answer
    names = [f"lost {number}" for number in range(lost)]
    late = data.draw(st.lists(st.tuples(st.sampled_from(names), st.sampled_from(parts)), unique=True))
    members = [Member(servers, f"survivor {number}") for number in range(waiting + outside)]
    for member in members[:waiting]:
        member.push()
    for member in members[waiting:]:
        member.zeros.push_once(servers.keys)
    servers.late = late
    for place in order:
        if place < len(members):
            members[place].mend(place, len(members), lost)
    assert servers.open({member.name for member in members}) == []


def test_t7_where_a_survivors_own_request_comes_late_what_is_not_answered_is_pushed_once_more_after_a_pause() -> None:
    """Then more must not follow at once: what is owed is there."""
    servers = Servers(SMALL, 3)
    first, second = Member(servers, "first"), Member(servers, "second")
    first.push()
    late = [False]

    def pause() -> None:
        if not late[0]:
            second.push()
        late[0] = True

    first.pause = pause  # type: ignore[method-assign]
    first.mend(0, 1, lost=1)
    assert late == [True]
    assert first.rounds == 0
    assert servers.open({"first", "second"}) == []


def test_t7_zeros_are_divided_alike_on_all_and_take_little_memory() -> None:
    keys = Servers([(str(n), (1_000_000 if n else 12_000_000,), "float32") for n in range(30)], 3).keys
    windows = windows_of(keys, limit=10 << 20)
    assert [key.number for window in windows for key in window] == list(range(30))
    assert [[key.number for key in window] for window in windows[:3]] == [[0], [1, 2], [3, 4]], "a large key goes whole"
    shares = [share_of(keys, number, 4) for number in range(4)]
    assert sorted(key.number for share in shares for key in share) == list(range(30))
    sizes = [sum(key.nbytes for key in share) for share in shares]
    assert max(sizes) <= 48_000_000
    assert windows_of([]) == []


# ---- the guard


class Worker:
    """Its training thread is in an exchange."""

    def __init__(self, servers: Servers, name: str) -> None:
        self.sent: Queue[FromWorker] = Queue()
        self.store = FakeStore(servers, name)
        self.engine = FakeEngine(self.store)
        self.guard = StepGuard(self.engine, self.sent.put)  # type: ignore[arg-type]
        self.guard.formed(1, AT)
        self.keys, self.gradients = servers.keys, [Gradient() for _ in servers.keys]

    def exchange(self) -> threading.Thread:
        begun = threading.Event()

        def push() -> None:
            for key, gradient in zip(self.keys, self.gradients, strict=True):
                self.store.push(key, gradient)
            begun.set()

        numbers = [key.number for key in self.keys]
        thread = threading.Thread(
            target=lambda: self.guard.exchange(numbers, push, self.gradients) and self.guard.apply(AT, lambda: None),
            daemon=True,
        )
        thread.start()
        assert begun.wait(patient(20))
        return thread

    def hear(self) -> FromWorker:
        return self.sent.get(timeout=patient(20))


def test_t7_who_waits_says_so_when_its_own_gradients_are_with_the_servers() -> None:
    """Else zeros for what is still on its way would be too many."""
    servers = Servers(SMALL, 3)
    worker = Worker(servers, "a")
    worker.engine.sums_end.clear()
    thread = worker.exchange()
    worker.guard.handle(Abort(generation=1))
    worker.guard.handle(Abort(generation=1))  # asked again meanwhile
    assert (worker.sent.empty(), worker.store.flushed) == (True, 0)
    worker.engine.sums_end.set()
    status = worker.hear()
    assert isinstance(status, StepStatus)
    assert (status.phase, status.keys, status.windows) == ("wait", (0, 1, 2), 1)
    assert worker.store.flushed > 0
    worker.guard.handle(Pump(generation=1, number=1, keys=status.keys, count=2, workers=3))
    done = worker.hear()
    assert isinstance(done, Pumped), "of two questions the later one is answered"
    assert (done.number, done.rounds) == (1, 0)
    worker.guard.handle(StepVerdict(generation=1, position=AT))
    thread.join(patient(20))
    assert not thread.is_alive()


def test_t7_two_survivors_of_which_one_computes_free_themselves() -> None:
    servers = Servers(LARGE, 3)
    waits, computes = Worker(servers, "waits"), Worker(servers, "computes")
    thread = waits.exchange()
    statuses = []
    for worker in (waits, computes):
        worker.guard.handle(Abort(generation=1))
        statuses.append(worker.hear())
    assert [status.phase for status in statuses if isinstance(status, StepStatus)] == ["wait", "out"]
    order = Pump(generation=1, keys=(0, 1, 2, 3), workers=3)
    for number in (1, 2):
        computes.guard.handle(order.model_copy(update={"number": number, "fills": True}))
        assert isinstance(computes.hear(), Pumped)
    assert [servers.count("computes", part) for key in servers.keys for part in key.parts] == [1] * 6, "not twice"
    for share, worker in enumerate((waits, computes)):
        worker.guard.handle(order.model_copy(update={"number": 3, "share": share, "shares": 2}))
        assert isinstance(worker.hear(), Pumped)
    assert servers.open({"waits", "computes"}) == []
    waits.guard.handle(StepVerdict(generation=1, position=AT))
    thread.join(patient(20))
    assert not thread.is_alive()


def test_t7_an_order_that_a_later_question_made_void_is_not_carried_out() -> None:
    """Its shares are of other survivors; two would push for one key."""
    servers = Servers(SMALL, 3)
    worker = Worker(servers, "a")
    thread = worker.exchange()
    before = list(servers.taken)
    with worker.guard._pumping:  # an earlier one is at work
        worker.guard.handle(Pump(generation=1, number=1, keys=(0, 1, 2), workers=3))
        worker.guard.handle(Abort(generation=1))
    assert isinstance(worker.hear(), StepStatus)
    assert servers.taken == before
    worker.guard.handle(Pump(generation=1, number=2, keys=(0, 1, 2), workers=3, count=2))
    assert isinstance(done := worker.hear(), Pumped)
    assert done.number == 2
    worker.guard.handle(StepVerdict(generation=1, position=AT))
    thread.join(patient(20))
