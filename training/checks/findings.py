"""The rules' findings in one worker's script, and which rules were silenced, and how.

Each finding is reported once, with file and line; those that stop the job are reported together. A rule is silenced on
a line by `# dyntrain: ignore[DT301]`, in a script by `ElasticJob.join(ignore=("DT301",))`, and for a launch by
`--ignore DT301`, which reaches workers by their environment.
"""

from __future__ import annotations

import linecache
import logging
import os
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice
from types import CodeType, FrameType
from typing import Literal, NamedTuple, get_args

from dyntrain.training.checks.rules import RULES, Rule

Mode = Literal["off", "warn", "strict"]
MODES: tuple[Mode, ...] = get_args(Mode)
IGNORE_VARIABLE, CHECKS_VARIABLE = "DYNTRAIN_IGNORE", "DYNTRAIN_CHECKS"
IN_A_LINE = re.compile(r"#\s*dyntrain:\s*ignore\[([\w\s,]*)\]")
LIBRARIES = ("dyntrain", "mxnet", "gluoncv", "gluonnlp", "contextlib", "functools")
MESSAGE = "{at}{code}: {sentence}: {remedy}. More, and how to silence it: dyntrain check --explain {code}"
log = logging.getLogger(__name__)


class Place(NamedTuple):
    """A place in a script; `last` is the last line of the statement that begins at `line`."""

    file: str
    line: int
    last: int


def codes_in(text: str) -> frozenset[str]:
    """Return the codes of a comma-separated list. Raises ValueError for one that no rule has, or that is fixed."""
    return known_codes(part.strip() for part in text.split(",") if part.strip())


def known_codes(codes: Iterable[str]) -> frozenset[str]:
    """Return the codes as a set. Raises ValueError for one that no rule has, or that cannot be silenced."""
    known = frozenset(codes)
    for code in sorted(known):
        if code not in RULES:
            raise ValueError(f"{code!r} is the code of no rule: `dyntrain check --explain` lists them")
        if RULES[code].fixed:
            raise ValueError(f"{code} cannot be silenced: without it a step has no meaning, or the workers part")
    return known


def mode_of(text: str) -> Mode:
    """Return the mode of this name. Raises ValueError for an unknown one."""
    for mode in MODES:
        if text == mode:
            return mode
    raise ValueError(f"checks={text!r}: must be 'off', 'warn' or 'strict'")


class Findings:
    """The findings of one process. Raises ValueError for an unknown code or mode.

    The launch's mode, in the environment, takes precedence over the script's; the codes that either ignores add up.
    """

    def __init__(self, ignore: Iterable[str] = (), mode: str | None = None) -> None:
        if isinstance(ignore, str):
            raise ValueError(f"ignore={ignore!r}: several codes, as in ignore=('DT301',)")
        self._ignored = known_codes(ignore) | codes_in(os.environ.get(IGNORE_VARIABLE, ""))
        self.mode = mode_of(os.environ.get(CHECKS_VARIABLE) or mode or "warn")
        self.silenced: dict[str, str] = {"all": "checks='off'"} if self.mode == "off" else {}  # how, by code
        self._seen = set[tuple[str, Place | None]]()
        self._stops = dict[str, None]()

    @property
    def off(self) -> bool:
        return self.mode == "off"

    @property
    def stops(self) -> str | None:
        """All findings so far that stop the job; the probe's (DT2) come last, as the others may be their cause."""
        return "\n".join(sorted(self._stops, key=lambda text: ": DT2" in text)) or None

    def find(self, code: str, at: Place | None = None, /, **values: object) -> str | None:
        """Report that a rule applies, at the script's running line or at `at`.

        Returns the message with which to stop the job, or None if it continues: the rule is silenced, or its warning is
        logged, once.
        """
        rule, at = RULES[code], at or script_line()
        if (how := self._silenced(rule, at)) is not None:
            if how and code not in self.silenced:
                self.silenced[code] = how
                log.info("%s is silenced: %s", code, how)
            return None
        is_new, text = (code, at) not in self._seen, sentence_of(rule, at, **values)
        self._seen.add((code, at))
        if rule.severity == "error" or self.mode == "strict":
            self._stops.setdefault(text)
            return text
        if is_new:
            log.warning("%s", text)
        return None

    def _silenced(self, rule: Rule, at: Place | None) -> str | None:
        if rule.fixed:
            return None
        if self.off:
            return ""
        if rule.code in self._ignored:
            return "ignored by the script or its launch"
        return f"{at.file}:{at.line}" if at is not None and rule.code in _ignored_at(at) else None


def sentence_of(rule: Rule, at: Place | None, /, **values: object) -> str:
    where = "" if at is None else f"{at.file}:{at.line}: "
    words = {"sentence": rule.sentence.format(**values), "remedy": rule.remedy.format(**values)}
    return MESSAGE.format(at=where, code=rule.code, **words)


def _ignored_at(at: Place) -> set[str]:
    lines = (linecache.getline(at.file, number) for number in range(at.line, at.last + 1))
    ignored = (match.group(1) for line in lines if (match := IN_A_LINE.search(line)))
    return {code.strip() for codes in ignored for code in codes.split(",")}


def script_line() -> Place | None:
    """Return the innermost running line that is not a library's, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).split(".")[0] in LIBRARIES:
        frame = frame.f_back
    if frame is None:
        return None
    return Place(frame.f_code.co_filename, frame.f_lineno, _last_line(frame.f_code, frame.f_lasti) or frame.f_lineno)


@lru_cache(1024)
def _last_line(code: CodeType, instruction: int) -> int | None:
    """Return the last line of the expression or statement that the instruction belongs to."""
    return next(islice(code.co_positions(), instruction // 2, None), (None, None))[1]
