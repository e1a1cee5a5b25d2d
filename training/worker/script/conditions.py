"""What is set in a pass of a loop whenever a line of it is run: definite assignment, by the conditions around both."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Condition:
    """`names`: of the variables in it. `asks`: it calls what may answer otherwise the next time. `tested`: where in the
    source. `parts`: several that say the same together. `only_there`: where it is tested, once it is known not to say
    the same elsewhere.
    """

    text: str
    holds: bool
    names: frozenset[str] = field(compare=False)
    asks: bool = field(compare=False)
    tested: tuple[int, int] = field(compare=False)
    parts: frozenset[Condition] = field(compare=False)
    only_there: tuple[int, int] | None = None

    @property
    def there(self) -> Condition:
        return replace(self, only_there=self.tested)

    @property
    def opposites(self) -> tuple[Condition, Condition]:
        other = replace(self, holds=not self.holds, only_there=None)
        return other, other.there


Conditions = frozenset[Condition]


class Assigned:
    """In one pass. `changed`: names of what any pass changes; a condition of others, as of an option of the command
    line, holds in a whole pass or not at all, and is left out.
    """

    def __init__(self, changed: Iterable[str]) -> None:
        self._changed = frozenset(changed)
        self._sets = defaultdict[str, set[Conditions]](set)
        self._old = set[Condition]()  # what they depend on has changed since they were tested

    def sets(self, name: str, under: Conditions) -> None:
        for each in self._both(under):
            _join(self._sets[name], each)

    def changes(self, name: str, under: Conditions) -> None:
        """A condition with this variable, tested again, may say otherwise."""
        around = [each for both in self._both(under) for each in both]
        self._old |= {each.there for each in around if name in each.names}
        for sets in self._sets.values():
            for entry in [each for each in sets if any(_anywhere(part) and name in part.names for part in each)]:
                sets.remove(entry)
                for places in ([part.there for part in entry], [part.there for part in around]):
                    sets.add(frozenset(_pinned(part, name, places) for part in entry))

    def is_set(self, name: str, under: Conditions) -> bool:
        holds = frozenset(each for both in self._both(under) for part in both for each in (part, part.there))
        return any(each <= holds for each in self._sets[name])

    def _both(self, under: Conditions) -> Iterator[Conditions]:
        """As they are written, and by their parts."""
        whole = frozenset(each for each in under if self._varies(each))
        yield frozenset(self._seen(each) for each in whole)
        parts = (part for each in whole for part in each.parts or [each])
        yield frozenset(self._seen(part) for part in parts if self._varies(part))

    def _varies(self, condition: Condition) -> bool:
        return condition.asks or bool(condition.names & self._changed)

    def _seen(self, condition: Condition) -> Condition:
        return condition.there if condition.asks or condition.there in self._old else condition


def _anywhere(condition: Condition) -> bool:
    return condition.only_there is None


def _pinned(condition: Condition, name: str, places: Iterable[Condition]) -> Condition:
    if not _anywhere(condition) or name not in condition.names:
        return condition
    same = (each for each in places if (each.text, each.holds) == (condition.text, condition.holds))
    return next(same, condition.there)


def _join(sets: set[Conditions], under: Conditions) -> None:
    """What is set in both branches is set before what follows them."""
    sets.add(under)
    for each in under:
        rest = under - {each}
        if any(rest | {other} in sets for other in each.opposites):
            _join(sets, rest)
