"""`import mxnet` with the elastic interface, for unchanged scripts of AWS Dynamic Training.

A training process with the variables of `environment` finds `site/sitecustomize.py`, which Python imports at its start.
That file only installs `hook` for `import mxnet`, at no cost in processes that do not import MXNet. Processes that the
script starts inherit the variables. ps-lite's processes do not have them: only the training command does.

This does not work in a Python that ignores its environment (-I, -E) or its site (-S), or without this package.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SITE = Path(__file__).parent / "site"
VARIABLE = "PYTHONPATH"


def environment(variables: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the `variables` of a training process, with the additions that make its MXNet elastic."""
    earlier_path = variables.get(VARIABLE, inherited.get(VARIABLE, ""))
    return {**variables, VARIABLE: os.pathsep.join([str(SITE), *([earlier_path] if earlier_path else [])])}
