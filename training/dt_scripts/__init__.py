"""`import mxnet` with the elastic interface, for unchanged scripts of AWS Dynamic Training.

A training process that has `environment` finds `site/sitecustomize.py`, which Python imports at its start. That only
installs `hook` for `import mxnet`, and costs nothing in processes that do not import MXNet. Processes that the script
starts inherit it. ps-lite's processes never have it, since only the training command gets it.

Not covered: a Python that ignores its environment (-I, -E) or its site (-S), and one without this package.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SITE = Path(__file__).parent / "site"
VARIABLE = "PYTHONPATH"


def environment(variables: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """Add to the `variables` of a training process those that make its MXNet elastic."""
    earlier_path = variables.get(VARIABLE, inherited.get(VARIABLE, ""))
    return {**variables, VARIABLE: os.pathsep.join([str(SITE), *([earlier_path] if earlier_path else [])])}
