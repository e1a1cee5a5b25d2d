"""Find variables of the script that have other values on a joined worker than on other workers and in one process.
Pure.

A variable that depends on each worker's own samples differs on all workers, so that variable is not reported.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from dyntrain.training.trial.differences import END, HELD, LEAST_EFFECT, NAMES, ROUNDING_FACTOR, Arrays, Key, distance

Run = Mapping[Key, Arrays]
MemberRun = Mapping[Key, Sequence[Arrays]]


class Variables:
    """Values of the script's variables in three runs: in one process, with nudged weights, and on several workers."""

    def __init__(self, one: Run, nudged: Run, members: MemberRun) -> None:
        self._one, self._nudged, self._members = one, nudged, members
        self._bounds: dict[str, float] = {}

    def differing_variables(self, upto: Key) -> list[str]:
        """Return the names of variables that differ between workers at the start of any step up to `upto`, arrays
        first.
        """
        array_sizes: dict[str, int] = {}
        for key in self._steps_of_several_workers(upto):
            for name in self._variable_names(key, HELD):
                equalities = [
                    self._equals_one_process(key, HELD, name, worker_arrays) for worker_arrays in self._members[key]
                ]
                if True in equalities and False in equalities:
                    array_sizes.setdefault(name, self._one[key][HELD + name].size)
        return sorted(array_sizes, key=lambda name: array_sizes[name] == 1)

    def arrays_differing_at_end(self) -> list[str]:
        """Return the names of arrays that equal those in one process during the training, but not at the training's
        end.
        """
        last_key, shared_steps = max(self._one), self._steps_of_several_workers(max(self._one))
        later_steps = [key for key in shared_steps if (key[0], key[1] - 1) in shared_steps]
        equal_names = {
            name
            for key in later_steps
            for name in self._variable_names(key, HELD)
            if any(self._equals_one_process(key, HELD, name, worker_arrays) for worker_arrays in self._members[key])
        }
        return [
            name
            for name in self._variable_names(last_key, END)
            if self._one[last_key][END + name].size > 1 and name in equal_names
            if any(
                END + name in worker_arrays and not self._equals_one_process(last_key, END, name, worker_arrays)
                for worker_arrays in self._members[last_key]
            )
        ]

    def _steps_of_several_workers(self, upto: Key) -> list[Key]:
        return [key for key in sorted(self._one) if key <= upto and len(self._members.get(key, ())) > 1]

    def _variable_names(self, key: Key, kind: str) -> list[str]:
        return [name.removeprefix(kind) for name in self._one[key] if name.startswith(kind)]

    def _equals_one_process(self, key: Key, kind: str, name: str, worker_arrays: Arrays) -> bool | None:
        """Whether a worker's variable equals the variable in one process, up to rounding, or None if the worker has not
        set the variable.
        """
        root_name = re.split(r"[.\[]", name)[0]
        if kind + name not in worker_arrays and root_name not in worker_arrays.get((NAMES + kind).strip(), ()):
            return None
        return distance(self._one[key][kind + name], worker_arrays.get(kind + name)) <= self._tolerance(key, kind, name)

    def _tolerance(self, key: Key, kind: str, name: str) -> float:
        """Return the largest difference of a variable, up to this step, that rounding can explain."""
        nudge_difference = distance(self._one[key][kind + name], self._nudged.get(key, {}).get(kind + name))
        self._bounds[name] = max(
            self._bounds.get(name, 0.0), nudge_difference if math.isfinite(nudge_difference) else 0.0
        )
        return ROUNDING_FACTOR * max(self._bounds[name], LEAST_EFFECT["w"])


def saved_differences(one_process: Arrays, nudged: Arrays, members: Arrays) -> dict[str, float]:
    """Return by file name the largest difference of a saved array between the run in one process and the run on
    workers.

    Differences that rounding can explain, and files without larger differences, are left out.
    """
    differences: dict[str, float] = {}
    for name, array in one_process.items():
        if name in members and array.size > 1:
            member_difference, nudge_difference = distance(array, members[name]), distance(array, nudged.get(name))
            if member_difference > ROUNDING_FACTOR * max(
                nudge_difference if math.isfinite(nudge_difference) else 0.0, LEAST_EFFECT["w"]
            ):
                file_name = name.rpartition(" ")[0]
                differences[file_name] = max(differences.get(file_name, 0.0), member_difference)
    return differences


def names_text(names: Iterable[str], most: int = 4) -> str:
    """Return the first `most` names as a text that also says how many more there are. If several names are elements of
    one list, dictionary or object, only that one is named.
    """
    parent_names = {name: re.sub(r"(\[[^\[]*\]|\.[^.]*)$", "", name) for name in names}
    shared_parents = {parent for parent, count in Counter(parent_names.values()).items() if count > 1}
    shown_names = dict.fromkeys(parent if parent in shared_parents else name for name, parent in parent_names.items())
    shown_text = ", ".join(f"`{name}`" for name in [*shown_names][:most])
    return shown_text + (f" and {len(shown_names) - most} more" if len(shown_names) > most else "")
