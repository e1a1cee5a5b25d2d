"""Functions that write times, sizes and metrics as text, and the colours of statuses. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

from dyntrain.controller.contract.plain_text import in_brief, printable, printable_lines

__all__ = ["COLOURS", "ago", "in_brief", "metrics_text", "moment", "printable", "printable_lines", "size_text", "span"]

# green: in the job; yellow: changing; cyan: waiting; red: failed; dim: gone
COLOURS = {
    "ADDED": "green",
    "ADD_QUEUED": "yellow",
    "REMOVAL_QUEUED": "yellow",
    "WAITING": "cyan",
    "PREPARE_FAILED": "bold red",
    "REMOVED": "dim",
    "GONE": "dim",
}
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))  # of time: (seconds, name)


def size_text(count: int) -> str:
    """A number of bytes as text, in kB, MB or GB (powers of 1000)."""
    for unit, unit_bytes in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= unit_bytes:
            return f"{count / unit_bytes:.1f} {unit}"
    return f"{count} bytes"


def span(seconds: float) -> str:  # a duration as text
    """A duration as text in the two largest units, such as 2 h 5 min."""
    whole_seconds = round(max(0.0, seconds))
    for index, (unit_seconds, unit) in enumerate(_UNITS):
        if whole_seconds >= unit_seconds or unit == "s":
            unit_count, remainder = divmod(whole_seconds, unit_seconds)
            smaller_unit = _UNITS[index + 1] if index + 1 < len(_UNITS) else None
            smaller_text = (
                f" {remainder // smaller_unit[0]} {smaller_unit[1]}"
                if smaller_unit and unit_count < 10 and remainder >= smaller_unit[0]
                else ""
            )
            return f"{unit_count} {unit}{smaller_text}"
    raise AssertionError


def moment(seconds: float | None) -> str:  # a time in UTC as text
    return "-" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def ago(time: float | None, now: float) -> str:  # such as "5 min ago"
    return "-" if time is None else f"{span(now - time)} ago"


def metrics_text(metrics: dict[str, float | None]) -> str:
    return ", ".join(f"{name} {'NaN' if value is None else format(value, '.4g')}" for name, value in metrics.items())
