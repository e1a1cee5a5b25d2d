"""The gradients of two well-known networks, as (name, shape, dtype), in the order in which workers sum the gradients.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

Key = tuple[str, tuple[int, ...], str]  # name, shape, type of the elements
Shapes = Iterator[tuple[int, ...]]

RESNET50_STAGES = ((3, 256), (4, 512), (6, 1024), (3, 2048))  # blocks of each stage, and their output channels
BERT_LAYERS, BERT_HIDDEN, BERT_INNER, BERT_VOCAB, BERT_LENGTH = 24, 1024, 4096, 30522, 512  # length: of a sequence


def resnet50() -> list[Key]:
    """Return the gradients of Gluon's `resnet50_v1` with 1,000 classes: 25.6 million parameters."""
    return _keys_of_shapes(_resnet50_shapes())


def bert_large() -> list[Key]:
    """Return the gradients of BERT-large (https://arxiv.org/abs/1810.04805) with its pooler: 335 million parameters."""
    return _keys_of_shapes(_bert_large_shapes())


NETWORKS: dict[str, Callable[[], list[Key]]] = {"ResNet-50": resnet50, "BERT-large": bert_large}


def _keys_of_shapes(shapes: Shapes) -> list[Key]:
    return [(str(key_number), shape, "float32") for key_number, shape in enumerate(shapes)]


def _resnet50_shapes() -> Shapes:
    yield from ((64, 3, 7, 7), (64,), (64,))
    input_channels = 64
    for block_count, output_channels in RESNET50_STAGES:
        inner_channels = output_channels // 4
        for block in range(block_count):
            yield from (
                (inner_channels, input_channels, 1, 1),
                (inner_channels,),
                (inner_channels,),
                (inner_channels,),
            )  # these convolutions have a bias, besides BatchNorm's two parameters
            yield from ((inner_channels, inner_channels, 3, 3), (inner_channels,), (inner_channels,))
            yield from (
                (output_channels, inner_channels, 1, 1),
                (output_channels,),
                (output_channels,),
                (output_channels,),
            )
            if block == 0:
                yield from ((output_channels, input_channels, 1, 1), (output_channels,), (output_channels,))
            input_channels = output_channels
    yield from ((1000, input_channels), (1000,))


def _bert_large_shapes() -> Shapes:
    hidden_size, inner_size = BERT_HIDDEN, BERT_INNER
    yield from ((BERT_VOCAB, hidden_size), (BERT_LENGTH, hidden_size), (2, hidden_size), (hidden_size,), (hidden_size,))
    for _ in range(BERT_LAYERS):
        for _ in range(4):  # query, key, value, output
            yield from ((hidden_size, hidden_size), (hidden_size,))
        yield from ((hidden_size,), (hidden_size,))
        yield from (
            (inner_size, hidden_size),
            (inner_size,),
            (hidden_size, inner_size),
            (hidden_size,),
            (hidden_size,),
            (hidden_size,),
        )
    yield from ((hidden_size, hidden_size), (hidden_size,))
