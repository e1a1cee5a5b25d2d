"""What people read of an instance's status goes along the arrows of `decisions.arrows`, whatever overtakes what: in the
tag, and in what `dyntrain status` says. A status goes back only after a person has changed the wish.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from overlapping_runs import WHOLE
from overtaken_cluster import Overtaken

SOME = st.integers(0, 3)
DELIVERED = st.sampled_from([True, True, True, False])
CALLS = st.just(WHOLE) | st.just(WHOLE) | st.integers(0, 12) | st.integers(0, 40)
KINDS = st.lists(st.sampled_from(["owned", "by hand", "member", "new owned", "new member"]), min_size=1, max_size=2)


def move(name: str, **how: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[str, dict[str, Any]]]:
    return st.tuples(st.just(name), st.fixed_dictionaries(how))


OFTEN = [
    move(
        "change_of_mind",
        which=SOME,
        delivered=DELIVERED,
        behind=st.sampled_from(["", "", "", "index", "reads"]),
        calls=CALLS,
    ),
    move("target_read", delivered=DELIVERED, calls=CALLS),
    move("boundary", delivered=DELIVERED, forming=st.booleans(), leaving=st.booleans(), calls=CALLS),
    move("run", what=st.sampled_from(["pass", "tick", "look"]), calls=CALLS),
    move("go_on", which=SOME, calls=CALLS),
]
SELDOM = [
    move("run", what=st.just("resync"), calls=CALLS),
    move("deliver", which=st.integers(0, 9), times=st.sampled_from([0, 1, 1, 1, 2]), kept=st.booleans(), calls=CALLS),
    move("die", which=SOME, how=st.sampled_from(["dies", "is throttled"])),
    move("index", behind=st.booleans()),
    move("time", seconds=st.sampled_from([0.5, 11.0, 31.0, 61.0])),
    move("aws"),
]
MOVES = st.lists(st.one_of(*OFTEN, *OFTEN, *SELDOM), min_size=6, max_size=40)


@given(KINDS, MOVES)
@settings(max_examples=300)
def test_law_no_status_goes_back_unless_a_person_has_changed_the_wish(kinds: list[str], moves: list[Any]) -> None:
    cluster = Overtaken(tuple(kinds))
    for name, how in moves:
        getattr(cluster, name)(**how)
        cluster.check()
    cluster.end()


CHANGE = [("change_of_mind", {"which": 0, "delivered": True, "behind": ""})]
BOUNDARY = [("target_read", {"delivered": True}), ("boundary", {"delivered": True, "forming": False, "leaving": False})]
SLOWLY = [("target_read", {"delivered": True}), ("boundary", {"delivered": True, "forming": True, "leaving": True})]
HEARD = [("deliver", {"which": 0, "times": 1, "kept": False})]
AWS: list[tuple[str, dict[str, Any]]] = [("aws", {})]
STRAGGLER: dict[str, st.SearchStrategy[Any]] = {
    "kind": st.sampled_from(["owned", "by hand", "member", "new owned", "known owned", "known by hand"]),
    "happenings": st.lists(st.sampled_from([CHANGE, CHANGE, BOUNDARY, BOUNDARY, SLOWLY, AWS]), min_size=2, max_size=6),
    "what": st.sampled_from(["pass", "pass", "pass", "tick", "resync", "look"]),
    "place": st.tuples(st.integers(0, 1) | st.integers(0, 2), st.integers(1, 4)),
    "calls": st.integers(0, 8) | st.integers(0, 18),
    "slow": st.sampled_from([0.0, 0.0, 31.0]),
    "behind": st.booleans(),
}


@given(**STRAGGLER)
@settings(max_examples=600)
def test_law_a_run_that_stands_still_anywhere_while_others_pass_takes_no_status_back(
    kind: str,
    happenings: list[list[tuple[str, dict[str, Any]]]],
    what: str,
    place: tuple[int, int],
    calls: int,
    slow: float,
    behind: bool,
) -> None:
    """Everything else goes its way at once. `place`: before which happening the run begins, and after how many of them
    it goes on; `slow`: how long it stands besides; `behind`: what the index shows stays as it was then. A `known` node
    is one that waits to join.
    """
    cluster = Overtaken((kind.replace("known", "new"),))
    begins, lasts = place
    if kind.startswith("known"):
        cluster.deliver(which=0, times=1, kept=False, calls=WHOLE)
        cluster.deliver(which=0, times=1, kept=False, calls=WHOLE)
    happenings = [HEARD, HEARD, *happenings] if kind.startswith("new") else happenings
    for number, happening in enumerate(happenings):
        if number == begins:
            cluster.index(behind=behind)
            cluster.run(what, calls)
        if number == begins + lasts:
            cluster.time(slow)
            cluster.go_on(0, WHOLE)
            cluster.check()
            cluster.index(behind=False)
        for name, how in happening:
            timing = {} if name == "aws" else {"calls": calls if what == "pass" and number == begins else WHOLE}
            getattr(cluster, name)(**how, **timing)
            cluster.check()
    cluster.end()
