"""Findings: reports that a worker's script breaks rules, unless a rule is silenced.

Each finding is reported once, with the script's file and line. Findings that stop the job are reported together in one
error. A rule is silenced on a line by `# dyntrain: ignore[DT301]`, in a script by `ElasticJob.join(ignore=("DT301",))`,
and for a launch by `--ignore DT301`. The option `--ignore` of `dyntrain launch` reaches the workers through an
environment variable.
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
IGNORE_COMMENT = re.compile(r"#\s*dyntrain:\s*ignore\[([\w\s,]*)\]")
LIBRARIES = ("dyntrain", "mxnet", "gluoncv", "gluonnlp", "contextlib", "functools")  # not the user's own code
MESSAGE_FORMAT = "{place}{code}: {sentence}: {remedy}. More, and how to silence it: dyntrain check --explain {code}"
log = logging.getLogger(__name__)


class Place(NamedTuple):
    """Place of one statement in a user's script: a file and its lines."""

    file: str  # the script's path
    line: int  # the statement's first line
    last: int  # the statement's last line


def codes_in(text: str) -> frozenset[str]:
    """Return the set of the rule codes in a comma-separated text.

    Raises ValueError for a code that no rule has, and for a rule that cannot be silenced.
    """
    return check_codes(part.strip() for part in text.split(",") if part.strip())


def check_codes(codes: Iterable[str]) -> frozenset[str]:
    """Check that each text in `codes` is the code of a rule that can be silenced, and return the codes as a set.

    Raises ValueError for a code that no rule has, and for a rule that cannot be silenced.
    """
    code_set = frozenset(codes)
    for code in sorted(code_set):
        if code not in RULES:
            raise ValueError(f"no rule has the code {code!r}: `dyntrain check --explain` lists all codes")
        if RULES[code].fixed:
            raise ValueError(
                f"{code} cannot be silenced: a step that breaks it has no meaning, or makes the weights diverge"
            )
    return code_set


def mode_of(text: str) -> Mode:
    """Return the mode of the checks (`off`, `warn` or `strict`) with the name `text`. Raises ValueError for an unknown
    name.
    """
    for mode in MODES:
        if text == mode:
            return mode
    raise ValueError(f"checks={text!r}: must be 'off', 'warn' or 'strict'")


class Findings:
    """Findings of one process: the rules that its script breaks.

    Raises ValueError for an unknown rule code or mode of the checks.

    A mode of the checks that is given to `dyntrain launch` arrives in an environment variable, and overrides the mode
    that the script gives. A rule is ignored if the launch or the script says so.
    """

    def __init__(self, ignore: Iterable[str] = (), mode: str | None = None) -> None:
        if isinstance(ignore, str):
            raise ValueError(f"ignore={ignore!r}: must be a tuple of codes, as in ignore=('DT301',)")
        self._ignored = check_codes(ignore) | codes_in(os.environ.get(IGNORE_VARIABLE, ""))
        self.mode = mode_of(os.environ.get(CHECKS_VARIABLE) or mode or "warn")
        self.silenced: dict[str, str] = {"all": "checks='off'"} if self.mode == "off" else {}  # by code: how
        self._seen = set[tuple[str, Place | None]]()
        self._stops = dict[str, None]()

    @property
    def is_off(self) -> bool:
        return self.mode == "off"

    @property
    def stop_messages(self) -> str | None:
        """Messages of all findings so far that stop the job, or None if no finding stops the job.

        Findings of the first batch's probe (codes DT2..) come last, because findings with other codes may show the
        cause.
        """
        return "\n".join(sorted(self._stops, key=lambda text: ": DT2" in text)) or None

    def find(self, code: str, place: Place | None = None, /, **values: object) -> str | None:
        """Report that the script breaks the rule `code`, at `place` or, without a place, at the script's running line.

        `values`: texts and numbers to insert in the rule's format strings. Returns the message with which the caller
        stops the job. Returns None if the job is not to be stopped, because the rule is silenced or is a warning. A
        warning is logged once for each place in the script.
        """
        rule, place = RULES[code], place or script_line()
        if (silenced_by := self._silence_reason(rule, place)) is not None:
            if silenced_by and code not in self.silenced:
                self.silenced[code] = silenced_by
                log.info("%s is silenced: %s", code, silenced_by)
            return None
        is_new_finding, finding_text = (code, place) not in self._seen, sentence_of(rule, place, **values)
        self._seen.add((code, place))
        if rule.severity == "error" or self.mode == "strict":
            self._stops.setdefault(finding_text)
            return finding_text
        if is_new_finding:
            log.warning("%s", finding_text)
        return None

    def _silence_reason(self, rule: Rule, place: Place | None) -> str | None:
        if rule.fixed:
            return None
        if self.is_off:
            return ""
        if rule.code in self._ignored:
            return "ignored by the script or its launch"
        return f"{place.file}:{place.line}" if place is not None and rule.code in _ignored_codes(place) else None


def sentence_of(rule: Rule, place: Place | None, /, **values: object) -> str:
    place_text = "" if place is None else f"{place.file}:{place.line}: "
    rule_texts = {"sentence": rule.sentence.format(**values), "remedy": rule.remedy.format(**values)}
    return MESSAGE_FORMAT.format(place=place_text, code=rule.code, **rule_texts)


def _ignored_codes(place: Place) -> set[str]:
    place_lines = (linecache.getline(place.file, number) for number in range(place.line, place.last + 1))
    code_lists = (match.group(1) for place_line in place_lines if (match := IGNORE_COMMENT.search(place_line)))
    return {code.strip() for code_list in code_lists for code in code_list.split(",")}


def script_line() -> Place | None:
    """Return the place of the user's running statement: the innermost on the call stack that is not in LIBRARIES.

    Returns None if no statement on the call stack is outside of LIBRARIES.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__")).split(".")[0] in LIBRARIES:
        frame = frame.f_back
    if frame is None:
        return None
    return Place(frame.f_code.co_filename, frame.f_lineno, _last_line(frame.f_code, frame.f_lasti) or frame.f_lineno)


@lru_cache(1024)
def _last_line(code: CodeType, instruction: int) -> int | None:
    """Return the number of the last line of the expression or statement to which a bytecode instruction belongs."""
    return next(islice(code.co_positions(), instruction // 2, None), (None, None))[1]
