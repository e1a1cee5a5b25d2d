"""ResNet for 32 x 32 images (He et al. 2015, arXiv 1512.03385, section 4.2): 6n + 2 layers in three stages."""

from __future__ import annotations

from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet

import mxnet as mx  # isort: skip
from mxnet.gluon import nn


class _Block(nn.HybridBlock):  # type: ignore[misc]  # mxnet has no types
    def __init__(self, channels: int, stride: int, project: bool) -> None:
        super().__init__()
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(
                nn.Conv2D(channels, 3, stride, 1, use_bias=False),
                nn.BatchNorm(),
                nn.Activation("relu"),
                nn.Conv2D(channels, 3, 1, 1, use_bias=False),
                nn.BatchNorm(),
            )
            self.shortcut = nn.Conv2D(channels, 1, stride, use_bias=False) if project else None

    def hybrid_forward(self, functions: Any, x: Any) -> Any:
        return functions.Activation(self.body(x) + (self.shortcut(x) if self.shortcut else x), act_type="relu")


def resnet(layers: int, width: int = 16) -> Any:
    """Make the network; `width` is the number of channels in the first stage.

    Raises ValueError if `layers` is not 6n + 2.
    """
    if layers < 8 or (layers - 2) % 6:
        raise ValueError(f"a ResNet for CIFAR-10 has 6n + 2 layers (8, 14, 20, 32, 56, 110), not {layers}")
    net = nn.HybridSequential()
    net.add(nn.Conv2D(width, 3, 1, 1, use_bias=False), nn.BatchNorm(), nn.Activation("relu"))
    for stage in range(3):
        for block in range((layers - 2) // 6):
            halves_image = stage > 0 and block == 0
            net.add(_Block(width * 2**stage, 2 if halves_image else 1, halves_image))
    net.add(nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(10))
    return net


def resnet_symbol(layers: int, width: int = 16) -> Any:
    """Return the network that `resnet` makes as a symbol, for MXNet's Module."""
    return mx.sym.SoftmaxOutput(resnet(layers, width)(mx.sym.Variable("data")), name="softmax")
