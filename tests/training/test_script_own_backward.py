"""Losses with a backward pass of the script's own, `autograd.Function` and `CustomOp`: what that divides by is nowhere
to be seen, so the script says what it is.
"""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import Conductor, Plain
from dyntrain.training.job import ElasticJob
from idioms import BATCH, CROSS
from mxnet import autograd
from test_script_heads import CHANGES, Loss, script
from test_script_idioms import all_close
from told import tells

import mxnet as mx  # isort: skip


class Squares(autograd.Function):
    """Of the net's outputs; `whole`: its backward pass divides by the samples, whatever is made of it."""

    def __init__(self, whole: bool = False) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, out: Any) -> Any:
        self.save_for_backward(out)
        return (out**2).sum(axis=1)

    def backward(self, given: Any) -> Any:
        (out,) = self.saved_tensors
        return 2 * out * given.expand_dims(1) / (len(out) if self.whole else 1)


class Straight(mx.operator.CustomOp):  # type: ignore[misc]
    def forward(self, is_train: Any, req: Any, in_data: Any, out_data: Any, aux: Any) -> None:
        self.assign(out_data[0], req[0], in_data[0])

    def backward(self, req: Any, out_grad: Any, in_data: Any, out_data: Any, in_grad: Any, aux: Any) -> None:
        self.assign(in_grad[0], req[0], out_grad[0])


@mx.operator.register("straight_through")
class StraightProp(mx.operator.CustomOpProp):  # type: ignore[misc]
    def create_operator(self, ctx: Any, in_shapes: Any, in_dtypes: Any) -> Straight:
        return Straight()


def of_function(net: Any, x: Any, y: Any) -> Any:
    return Squares()(net(x))


def mean_of_function(net: Any, x: Any, y: Any) -> Any:
    return CROSS(net(x), y).mean() + 0.5 * Squares()(net(x)).mean()


def divides(net: Any, x: Any, y: Any) -> Any:
    return Squares(whole=True)(net(x))


def of_custom(net: Any, x: Any, y: Any) -> Any:
    return mx.nd.Custom(net(x), op_type="straight_through").sum(axis=1)


def a_layer(net: Any, x: Any, y: Any) -> Any:
    """Below a loss that shows what it is."""
    return CROSS(mx.nd.Custom(net(x), op_type="straight_through"), y)


ALL = pytest.mark.parametrize("loss_of", [of_function, mean_of_function, divides, of_custom], ids=lambda f: f.__name__)


@ALL
def test_a_backward_pass_of_the_scripts_own_is_told_of(loss_of: Loss) -> None:
    with tells("DT114"):
        script(ElasticJob.join(), loss_of)


@pytest.mark.parametrize(
    ("loss_of", "step", "loss"),
    [
        (of_function, BATCH, "sum"),
        (of_custom, BATCH, "sum"),
        (mean_of_function, 1, "mean"),
        (divides, 1, "mean"),
        (a_layer, BATCH, None),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_t2_what_the_script_says_of_a_backward_pass_of_its_own_is_believed(
    loss_of: Loss, step: float, loss: Any
) -> None:
    all_close(Conductor(*CHANGES).run(lambda job: script(job, loss_of, step, loss)), script(Plain(), loss_of, step))
