"""Draw one image with all curves of a job's report, for documents that cannot show HTML. Pure."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape

from dyntrain.training.report.figures import HEIGHT, WIDTH
from dyntrain.training.report.page import figures_of, lifetime
from dyntrain.training.report.story import Story

HEAD_HEIGHT, TITLE_HEIGHT, MARGIN = 64, 26, 16
FONTS = "DejaVu Sans, Liberation Sans, Noto Sans, Arial, Helvetica, sans-serif"  # the first installed one is used
_NOT_IN_XML = re.compile(r"[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
STYLE = """
text { fill: #333; font-size: 12px; } .title { font-size: 15px; } .name { font-size: 20px; font-weight: bold; }
.grid { stroke: #ccc; } .mark { stroke: #b35900; stroke-dasharray: 3 3; }
.curve { fill: none; stroke: #1f6feb; stroke-width: 2; } circle.curve { fill: #1f6feb; }
"""


class NoFont(RuntimeError):
    """No font that the image can use is installed; the message lists the fonts that the image can use."""


def picture(story: Story) -> str:
    """Return the image with all curves of the job, as SVG on a white background."""
    svg_parts, y = [_text_element("name", 28, story.name), _text_element("title", 50, lifetime(story))], HEAD_HEIGHT
    for title, svg in figures_of(story):
        svg_start = f'<svg x="{MARGIN}" y="{y + TITLE_HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        svg_parts += [_text_element("title", y + TITLE_HEIGHT - 8, title), svg_start + svg.removeprefix("<svg ")]
        y += TITLE_HEIGHT + HEIGHT
    width, height = WIDTH + 2 * MARGIN, y + MARGIN
    return _NOT_IN_XML.sub(
        " ",
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="{FONTS}">'
        f'<style>{STYLE}</style><rect width="{width}" height="{height}" fill="#fff"/>' + "".join(svg_parts) + "</svg>",
    )


def without_text(drawing: str) -> str:
    """Return the SVG image without its texts, as it would be drawn on a machine without fonts."""
    return re.sub(r"<text\b.*?</text>", "", drawing, flags=re.DOTALL)


def _text_element(kind: str, y: int, text: str) -> str:
    return f'<text class="{kind}" x="{MARGIN}" y="{y}">{escape(text)}</text>'
