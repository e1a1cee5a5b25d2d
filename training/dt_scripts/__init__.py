"""`import mxnet` with the elastic interface, for unchanged scripts of AWS Dynamic Training.

A training process with the variables of `environment` finds `site/sitecustomize.py`, which Python imports at its start.
That file only installs `hook` for `import mxnet`, at no cost in processes that do not import MXNet. Processes that the
script starts inherit the variables. The processes of ps-lite do not get these variables, only the training command
does.

The replacement fails in a Python that ignores its environment (-I, -E) or site packages (-S), or lacks this package.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SITE_FOLDER = Path(__file__).parent / "site"
PATH_VARIABLE = "PYTHONPATH"


def environment(variables: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the `variables` of a training process, with the additions that make its MXNet elastic."""
    earlier_path = variables.get(PATH_VARIABLE, inherited.get(PATH_VARIABLE, ""))
    return {**variables, PATH_VARIABLE: os.pathsep.join([str(SITE_FOLDER), *([earlier_path] if earlier_path else [])])}
