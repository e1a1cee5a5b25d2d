"""Figures as SVG without scripts and external files, so that the page's policy may forbid these. Pure.

A figure shows one curve over time, and membership changes as numbered marks. ElementTree escapes all text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, isfinite, log10
from xml.etree import ElementTree as Tree

WIDTH, HEIGHT = 960, 220
LEFT, RIGHT, TOP, BOTTOM = 92, 14, 24, 32  # margins for labels on a narrow screen, which are twice as large
MOST_POINTS = 800  # more points would share pixels
UNITS = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
SVG = "http://www.w3.org/2000/svg"


@dataclass(frozen=True)
class Mark:
    """A numbered vertical line at the time `at`, with `text` as its title."""

    at: float
    number: int
    text: str


def figure(
    title: str,
    curve: Sequence[tuple[float, float | None]],
    span: tuple[float, float],
    marks: Sequence[Mark] = (),
    *,
    steps: bool = False,
    from_zero: bool = False,
) -> str:
    """Draw a curve of (time, value); a value of None leaves a gap.

    `steps`: each value holds since the time of the previous one. `from_zero`: the value axis begins at 0 or below.
    """
    values = [value for _, value in curve if value is not None and isfinite(value)]
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    ticks = ticks_of(min(low, 0.0) if from_zero else low, high)
    bounds = (min(low, ticks[0]), max(high, ticks[-1]))
    begin, end = span if span[1] > span[0] else (span[0], span[0] + 1.0)

    def x(at: float) -> float:
        return LEFT + (at - begin) / (end - begin) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - bounds[0]) / (bounds[1] - bounds[0]) * (HEIGHT - TOP - BOTTOM)

    root = Tree.Element("svg", {"xmlns": SVG, "viewBox": f"0 0 {WIDTH} {HEIGHT}", "role": "img"})
    Tree.SubElement(root, "title").text = f"{title}: from {low:.4g} to {high:.4g}" if values else f"{title}: no values"
    for number, tick in enumerate(ticks):
        _line(root, "grid", LEFT, y(tick), WIDTH - RIGHT, y(tick))
        _text(root, f"{tick:.6g}", LEFT - 6, y(tick) + 4, "end", hides_when_narrow=number % 2 == 1)
    unit, seconds = next((name, size) for name, size in UNITS if end - begin >= 3 * size or size == 1)
    for number, amount in enumerate(ticks_of(0.0, (end - begin) / seconds)):
        if (at := begin + amount * seconds) <= end:
            anchor = "end" if x(at) > WIDTH - LEFT else "middle" if number else "start"
            x_position = min(x(at) + RIGHT, WIDTH) if anchor == "end" else x(at)
            _text(root, f"{amount:.6g} {unit}", x_position, HEIGHT - 8, anchor, hides_when_narrow=number % 2 == 1)
    for mark in marks:
        line = _line(root, "mark", x(mark.at), TOP, x(mark.at), HEIGHT - BOTTOM)
        Tree.SubElement(line, "title").text = mark.text
        _text(root, str(mark.number), x(mark.at), TOP - 5, "middle")
    for piece in pieces(thinned(curve)):
        corners = [(x(at), y(value)) for at, value in piece]
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
    """Return three to seven round numbers that enclose `low` and `high`."""
    if not high > low:
        low, high = (low - 0.5, low + 0.5) if low else (0.0, 1.0)
    least_step = (high - low) / 4
    size = 10.0 ** floor(log10(least_step))
    step = next(size * factor for factor in (1, 2, 2.5, 5, 10) if size * factor >= least_step)
    return [number * step for number in range(floor(low / step), ceil(high / step) + 1)]


def pieces(curve: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """Split the curve at values that are None or not finite, and omit these values."""
    segments: list[list[tuple[float, float]]] = [[]]
    for at, value in curve:
        if value is None or not isfinite(value):
            segments.append([])
        else:
            segments[-1].append((at, value))
    return [piece for piece in segments if piece]


def thinned(curve: Sequence[tuple[float, float | None]]) -> list[tuple[float, float | None]]:
    """Reduce a long curve to the minimum and the maximum of each stretch, so that no peak is lost."""
    if len(curve) <= MOST_POINTS:
        return list(curve)
    size = ceil(2 * len(curve) / MOST_POINTS)
    points: list[tuple[float, float | None]] = []
    for start in range(0, len(curve), size):
        stretch = curve[start : start + size]
        numbers = [(value, at) for at, value in stretch if value is not None and isfinite(value)]
        if len(numbers) < len(stretch):
            points.append((stretch[0][0], None))
        ends = {min(numbers), max(numbers)} if numbers else set()
        points += sorted((at, value) for value, at in ends)
    return points


def _line(root: Tree.Element, kind: str, x1: float, y1: float, x2: float, y2: float) -> Tree.Element:
    return Tree.SubElement(
        root, "line", {"class": kind, "x1": _rounded(x1), "y1": _rounded(y1), "x2": _rounded(x2), "y2": _rounded(y2)}
    )


def _text(root: Tree.Element, text: str, x: float, y: float, anchor: str, hides_when_narrow: bool = False) -> None:
    """Add text; a `hides_when_narrow` text is hidden on a narrow screen."""
    place = {"x": _rounded(x), "y": _rounded(y), "text-anchor": anchor}
    Tree.SubElement(root, "text", {**place, "class": "second"} if hides_when_narrow else place).text = text


def _rounded(value: float) -> str:
    return f"{value:.1f}"
