"""Import this before mxnet: it puts back the names that MXNet 1.9.1 takes from NumPy and that NumPy 1.24 removed."""

from __future__ import annotations

import numpy as np

for _name, _type in {"bool": bool, "int": int, "float": float, "object": object}.items():
    if _name not in vars(np):
        setattr(np, _name, _type)
