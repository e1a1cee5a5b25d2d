"""`import mxnet` with the elastic face in it, for scripts of AWS Dynamic Training as they are.

A training process that has `environment` finds `site/sitecustomize.py` where Python looks for one when it starts. That
only puts `hook` in the way of `import mxnet`, which costs nothing where MXNet is not imported: in a shell's other
Pythons, say. Processes that the script starts have it too. ps-lite's processes never do, as it is given to the training
command alone.

Not covered: a Python that is told to ignore its environment (-I, -E) or its site (-S), and one without this package.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SITE = Path(__file__).parent / "site"
VARIABLE = "PYTHONPATH"


def environment(given: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """`given`, which a training process has besides what it inherits, with what makes its MXNet elastic."""
    before = given.get(VARIABLE, inherited.get(VARIABLE, ""))
    return {**given, VARIABLE: os.pathsep.join([str(SITE), *([before] if before else [])])}
