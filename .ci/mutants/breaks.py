"""All breaks that cosmic-ray's operators can make in one place of the rooms, and a sample of them."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from apart import Apart, Spot
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

# Each room with its tests, below tests/. Tests that `make test` leaves out are left out here too.
CONTROLLER = ("scenarios/test_*", "contracts/test_*", "controller/test_controller_*", "controller/test_pool_*")
NODE = ("node_bootstrap/test_*",)
SESSION = ("training/test_session_*", "training/test_training_*")
WORKER = (*SESSION, "training/test_state_*", "training/test_reduce_*")
ROOMS = {
    "controller/core": CONTROLLER,
    "controller/loops": CONTROLLER,
    "controller/adapters": (*CONTROLLER, "jobs/test_jobs_adapters.py"),
    "controller/jobs": ("jobs/test_*",),
    "node_bootstrap/core": NODE,
    "node_bootstrap/supervision": NODE,
    "training/session": SESSION,
    "training/sampling": ("training/test_batching.py", "training/test_whole_file.py", "training/test_training_*"),
    "training/worker/membership": WORKER,
    "training/worker/transfer": WORKER,
}
FURTHER = {  # of the command line and the embedded cloud, which use these rooms: expensive, and closer to others
    "tests/controller/test_controller_cli.py",
    "tests/controller/test_controller_commands.py",
    "tests/controller/test_controller_doctor.py",
    "tests/jobs/test_jobs_cloud.py",
}
UNCHANGED = {"name", "newline", "string", "endmarker", "fstring_start", "fstring_string", "fstring_end"}  # half of all


@dataclass(frozen=True, order=True)
class Place:
    """A place in a file where an operator applies."""

    file: str
    start: Spot
    operator: str
    occurrence: int


@dataclass(frozen=True)
class Break:
    """A break: the changed source of a file."""

    place: Place
    source: str  # of the whole file
    change: str  # of its lines

    @property
    def room(self) -> str:
        return next(room for room in ROOMS if self.place.file.startswith(f"{room}/"))

    def __str__(self) -> str:
        return f"{self.place.file}:{self.place.start[0]} {self.place.operator} {self.change}"


def places(tree: Path) -> list[Place]:
    """All places of the rooms."""
    operators = {name: get_operator(name) for name in operator_names()}
    plain = {name.removeprefix("core/"): one() for name, one in operators.items() if not one.arguments()}
    found_places = []
    for file in product(tree):
        source = (tree / file).read_text(encoding="utf-8")
        apart = Apart(source)
        nodes = [node for node in ast_nodes(get_ast(source)) if node.type not in UNCHANGED]
        for name, operator in plain.items():
            spans = [span for node in nodes for span in operator.mutation_positions(node)]
            found_places += [Place(file, span[0], name, n) for n, span in enumerate(spans) if not apart.holds(span)]
    return sorted(found_places)


def product(tree: Path) -> list[str]:
    """Files of the rooms."""
    return sorted(str(path.relative_to(tree)) for room in ROOMS for path in (tree / room).rglob("*.py"))


def digest(tree: Path) -> str:
    """Digest of the product's source: with the same digest and seed, the sample is the same."""
    sha256 = hashlib.sha256()
    for file in product(tree):
        sha256.update(f"{file}\n".encode() + (tree / file).read_bytes())
    return sha256.hexdigest()[:12]


def sample(tree: Path, all_places: Sequence[Place], seed: int, number: int) -> list[Break]:
    """Random breaks; those that leave the same program, or an invalid one, do not count."""
    shuffled = list(all_places)
    random.Random(seed).shuffle(shuffled)
    breaks: list[Break] = []
    for place in shuffled:
        if len(breaks) == number:
            break
        before = (tree / place.file).read_text(encoding="utf-8")
        after = mutate_code(before, get_operator(f"core/{place.operator}")(), place.occurrence)
        with contextlib.suppress(SyntaxError):
            if ast.dump(ast.parse(after)) != ast.dump(ast.parse(before)):
                breaks.append(Break(place, after, changed(before, after)))
    return breaks


def changed(before: str, after: str) -> str:
    """The changed lines, old and new."""
    old, new = before.splitlines(), after.splitlines()
    while old[-1:] == new[-1:]:
        del old[-1], new[-1]
    same = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    parts = [" / ".join(filter(None, map(str.strip, lines[same:]))) for lines in (old, new)]
    return " -> ".join(part or "nothing" for part in parts)


def mirrored(tree: Path, room: str) -> list[str]:
    """Test files of a room."""
    globs = [(tree / "tests").glob(glob) for glob in ROOMS[room]]
    return sorted({str(path.relative_to(tree)) for glob in globs for path in glob} - FURTHER)


def nearest(tree: Path, tests: Sequence[str], file: str) -> list[str]:
    """Test files that mention the module, by its dotted name or in an import, or are named after it."""
    *folders, stem = Path(file).with_suffix("").parts
    stem = stem if stem != "__init__" else folders.pop()
    name = re.compile(rf"\b{re.escape('.'.join(folders))}(\.{stem}\b| import [^\n]*\b{stem}\b)")
    return [test for test in tests if stem in Path(test).stem or name.search((tree / test).read_text(encoding="utf-8"))]
