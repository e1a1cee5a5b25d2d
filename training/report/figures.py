"""Draw figures as SVG without scripts and external files, because the report page's security policy forbids both. Pure.

A figure shows one curve over time, and membership changes as numbered marks. Python's ElementTree escapes all text in
the SVG.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, isfinite, log10
from xml.etree import ElementTree as Tree

WIDTH, HEIGHT = 960, 220
LEFT_MARGIN, RIGHT_MARGIN = 92, 14  # for labels on a narrow screen, which are twice as large
TOP_MARGIN, BOTTOM_MARGIN = 24, 32
MOST_POINTS = 800  # more points would share pixels
TIME_UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
SVG = "http://www.w3.org/2000/svg"


@dataclass(frozen=True)
class Mark:
    """A numbered vertical line in a figure, at the time `at`, which shows `text` under the mouse pointer."""

    at: float  # Unix time
    number: int  # number of the membership change
    text: str  # shown under the mouse pointer


def figure(
    title: str,
    curve: Sequence[tuple[float, float | None]],
    span: tuple[float, float],
    marks: Sequence[Mark] = (),
    *,
    steps: bool = False,
    from_zero: bool = False,
) -> str:
    """Return as SVG the curve through points (time, value); a value of None leaves a gap.

    `steps`: whether to draw a stepped line, in which each value holds from the time of the previous point to the time
    of its own point. `from_zero`: whether the value axis begins at 0 or below.
    """
    values = [value for _, value in curve if value is not None and isfinite(value)]
    lowest, highest = (min(values), max(values)) if values else (0.0, 1.0)
    ticks = ticks_of(min(lowest, 0.0) if from_zero else lowest, highest)
    bounds = (min(lowest, ticks[0]), max(highest, ticks[-1]))
    begin, end = span if span[1] > span[0] else (span[0], span[0] + 1.0)

    def x(at: float) -> float:
        return LEFT_MARGIN + (at - begin) / (end - begin) * (WIDTH - LEFT_MARGIN - RIGHT_MARGIN)

    def y(value: float) -> float:
        return (
            HEIGHT
            - BOTTOM_MARGIN
            - (value - bounds[0]) / (bounds[1] - bounds[0]) * (HEIGHT - TOP_MARGIN - BOTTOM_MARGIN)
        )

    root = Tree.Element("svg", {"xmlns": SVG, "viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img"})
    Tree.SubElement(root, "title").text = (
        f"{title}: from {lowest:.4g} to {highest:.4g}" if values else f"{title}: no values"
    )
    for number, tick in enumerate(ticks):
        _add_line(root, "grid", LEFT_MARGIN, y(tick), WIDTH - RIGHT_MARGIN, y(tick))
        _add_text(root, f"{tick:.6g}", LEFT_MARGIN - 6, y(tick) + 4, "end", hides_when_narrow=number % 2 == 1)
    unit_name, unit_seconds = next((name, size) for name, size in TIME_UNITS if end - begin >= 3 * size or size == 1)
    for number, unit_count in enumerate(ticks_of(0.0, (end - begin) / unit_seconds)):
        if (at := begin + unit_count * unit_seconds) <= end:
            anchor = "end" if x(at) > WIDTH - LEFT_MARGIN else "middle" if number else "start"
            x_position = min(x(at) + RIGHT_MARGIN, WIDTH) if anchor == "end" else x(at)
            _add_text(
                root, f"{unit_count:.6g} {unit_name}", x_position, HEIGHT - 8, anchor, hides_when_narrow=number % 2 == 1
            )
    for mark in marks:
        line = _add_line(root, "mark", x(mark.at), TOP_MARGIN, x(mark.at), HEIGHT - BOTTOM_MARGIN)
        Tree.SubElement(line, "title").text = mark.text
        _add_text(root, str(mark.number), x(mark.at), TOP_MARGIN - 5, "middle")
    for segment in split_at_gaps(thin_curve(curve)):
        corners = [(x(at), y(value)) for at, value in segment]
        if steps:
            corners = [corner for a, b in pairwise(corners) for corner in (a, (a[0], b[1]))] + corners[-1:]
        if len(corners) == 1:
            Tree.SubElement(
                root,
                "circle",
                {"class": "curve", "cx": _rounded(corners[0][0]), "cy": _rounded(corners[0][1]), "r": "2"},
            )
        else:
            points = " ".join(f"{_rounded(x_position)},{_rounded(y_position)}" for x_position, y_position in corners)
            Tree.SubElement(root, "polyline", {"class": "curve", "points": points})
    return Tree.tostring(root, encoding="unicode")


def ticks_of(low: float, high: float) -> list[float]:
    """Return three to seven equidistant round numbers for an axis, from at most `low` to at least `high`."""
    if not high > low:
        low, high = (low - 0.5, low + 0.5) if low else (0.0, 1.0)
    min_tick_step = (high - low) / 4
    power_of_ten = 10.0 ** floor(log10(min_tick_step))
    tick_step = next(power_of_ten * factor for factor in (1, 2, 2.5, 5, 10) if power_of_ten * factor >= min_tick_step)
    return [number * tick_step for number in range(floor(low / tick_step), ceil(high / tick_step) + 1)]


def split_at_gaps(curve: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """Return the pieces of the curve between values that are None or not finite."""
    segments: list[list[tuple[float, float]]] = [[]]
    for at, value in curve:
        if value is None or not isfinite(value):
            segments.append([])
        else:
            segments[-1].append((at, value))
    return [segment for segment in segments if segment]


def thin_curve(curve: Sequence[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """Reduce a long curve to the lowest and the highest point of each stretch of successive points, so that no peak is
    lost.
    """
    if len(curve) <= MOST_POINTS:
        return list(curve)
    stretch_size = ceil(2 * len(curve) / MOST_POINTS)
    points: list[tuple[float, float | None]] = []
    for start in range(0, len(curve), stretch_size):
        stretch = curve[start : start + stretch_size]
        values_and_times = [(value, at) for at, value in stretch if value is not None and isfinite(value)]
        if len(values_and_times) < len(stretch):
            points.append((stretch[0][0], None))
        extremes = {min(values_and_times), max(values_and_times)} if values_and_times else set()
        points += sorted((at, value) for value, at in extremes)
    return points


def _add_line(root: Tree.Element, css_class: str, x1: float, y1: float, x2: float, y2: float) -> Tree.Element:
    return Tree.SubElement(
        root,
        "line",
        {"class": css_class, "x1": _rounded(x1), "y1": _rounded(y1), "x2": _rounded(x2), "y2": _rounded(y2)},
    )


def _add_text(root: Tree.Element, text: str, x: float, y: float, anchor: str, hides_when_narrow: bool = False) -> None:
    """Add a text at (x, y) to the SVG element `root`; with `hides_when_narrow`, narrow screens hide the text."""
    position = {"x": _rounded(x), "y": _rounded(y), "text-anchor": anchor}
    Tree.SubElement(root, "text", {**position, "class": "second"} if hides_when_narrow else position).text = text


def _rounded(value: float) -> str:
    return f"{value:.1f}"
