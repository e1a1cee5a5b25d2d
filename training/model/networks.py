"""The gradients of two well-known networks, as (name, shape, dtype), in the order in which they are summed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

Key = tuple[str, tuple[int, ...], str]
Shapes = Iterator[tuple[int, ...]]

RESNET50_STAGES = ((3, 256), (4, 512), (6, 1024), (3, 2048))  # blocks of each stage, and their output channels
BERT_LAYERS, BERT_HIDDEN, BERT_INNER, BERT_WORDS, BERT_PLACES = 24, 1024, 4096, 30522, 512


def resnet50() -> list[Key]:
    """Gluon's `resnet50_v1` with 1,000 classes: 25.6 million parameters."""
    return _keys(_resnet50())


def bert_large() -> list[Key]:
    """The encoder of Devlin et al. (https://arxiv.org/abs/1810.04805) with its pooler: 335 million parameters."""
    return _keys(_bert_large())


NETWORKS: dict[str, Callable[[], list[Key]]] = {"ResNet-50": resnet50, "BERT-large": bert_large}


def _keys(shapes: Shapes) -> list[Key]:
    return [(str(number), shape, "float32") for number, shape in enumerate(shapes)]


def _resnet50() -> Shapes:
    yield from ((64, 3, 7, 7), (64,), (64,))
    channels = 64
    for blocks, wide in RESNET50_STAGES:
        narrow = wide // 4
        for block in range(blocks):
            yield from (
                (narrow, channels, 1, 1),
                (narrow,),
                (narrow,),
                (narrow,),
            )  # these convolutions have a bias, besides BatchNorm's two parameters
            yield from ((narrow, narrow, 3, 3), (narrow,), (narrow,))
            yield from ((wide, narrow, 1, 1), (wide,), (wide,), (wide,))
            if block == 0:
                yield from ((wide, channels, 1, 1), (wide,), (wide,))
            channels = wide
    yield from ((1000, channels), (1000,))


def _bert_large() -> Shapes:
    hidden, inner = BERT_HIDDEN, BERT_INNER
    yield from ((BERT_WORDS, hidden), (BERT_PLACES, hidden), (2, hidden), (hidden,), (hidden,))
    for _ in range(BERT_LAYERS):
        for _ in range(4):  # query, key, value, output
            yield from ((hidden, hidden), (hidden,))
        yield from ((hidden,), (hidden,))
        yield from ((inner, hidden), (inner,), (hidden, inner), (hidden,), (hidden,), (hidden,))
    yield from ((hidden, hidden), (hidden,))
