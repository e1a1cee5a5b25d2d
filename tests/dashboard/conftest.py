"""Every test of a page has one in a browser, and the server's bed is found by its name."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from browsing import browser, page

__all__ = ["browser", "page"]
