#!/usr/bin/env bash
# MXNet 1.9.1: where an optimizer keeps the float32 weights of a float16 net depends on which optimizer it is.
#
# With multi_precision=True, an optimizer's state for a float16 weight holds a float32 copy of the weight beside what it
# keeps by itself (momentum and the like). Optimizer.create_state_multi_precision, the documented hook, puts the copy
# FIRST: (weights, state). SGD, NAG and LARS override it and put the copy LAST: (momentum, weights). Nothing in
# the state says which it is, so code that reads or scales saved states by position (momentum correction, checkpoint
# surgery, converters) is right for some optimizers and silently damages the weights of others.
#
# Seen with mxnet 1.9.1, numpy 1.23.5, Python 3.11 on x86-64 Linux (2026-11-28). Prints the place of the float32 weights
# in the state of each optimizer that takes part in multi_precision; fails if that has changed.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3.11 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check mxnet==1.9.1 numpy==1.23.5
cat >"$work/look.py" <<'PY'
import mxnet as mx
import numpy as np

print("mxnet", mx.__version__)
for name in ("sgd", "nag", "signum", "adam", "rmsprop", "ftrl", "adagrad", "adadelta", "nadam", "lars", "lamb"):
    options = {"multi_precision": True, "learning_rate": 0.1}
    if name in ("sgd", "nag", "signum", "lars"):
        options["momentum"] = 0.9
    optimizer = mx.optimizer.create(name, **options)
    weight = mx.nd.full((3,), 0.5, dtype="float16")
    state = optimizer.create_state_multi_precision(0, weight)
    places = [
        "first" if place == 0 else "last"
        for place, part in enumerate(state)
        if isinstance(part, mx.nd.NDArray) and part.dtype is np.float32 and (part.asnumpy() == 0.5).all()
    ]
    print(f"{name:<9} {places}")
PY
cd "$work"
./venv/bin/python look.py 2>/dev/null | tee seen
diff seen - <<'SEEN'
mxnet 1.9.1
sgd       ['last']
nag       ['last']
signum    ['first']
adam      ['first']
rmsprop   ['first']
ftrl      ['first']
adagrad   ['first']
adadelta  ['first']
nadam     ['first']
lars      ['last']
lamb      ['first']
SEEN
echo "as seen: SGD, NAG and LARS keep the weights last, the others first"
