"""Sentences of a batch that are padded to the longest one: a worker's share has another longest one, and where the
padded length counts it trains on other numbers than the batch would, without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest

import mxnet as mx  # isort: skip
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.data.padding import PaddingCheck
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, Rows, initialise, labels, padded, weights
from mxnet import autograd
from mxnet.gluon import nn
from test_script_idioms import all_close

LENGTHS = np.arange(SAMPLES) % 5 + 1
SENTENCES = Rows([words[:n] for words, n in zip(labels(6, shape=(SAMPLES, 5)), LENGTHS, strict=True)], labels(3))


class OverAllPlaces(nn.Block):  # type: ignore[misc]  # mxnet has no types
    """A mean over the padded places too."""

    def __init__(self) -> None:
        super().__init__()
        with self.name_scope():
            self.embedding = nn.Embedding(7, 5)
            self.decoder = nn.Dense(3, in_units=5)

    def forward(self, words: Any) -> Any:
        return self.decoder(self.embedding(words).mean(axis=1))


def script(job: Any, **options: Any) -> list[Any]:
    net = initialise(OverAllPlaces(), mx.nd.zeros((1, 5)))
    trainer = job.trainer(net.collect_params(), "adam", {"learning_rate": 0.03})
    loader = job.loader(SENTENCES, BATCH, shuffle=True, batchify_fn=padded, **options)
    for _ in job.epochs(EPOCHS):
        for words, label in loader:
            with autograd.record():
                loss = CROSS(net(words), label)
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


@pytest.mark.parametrize("processes", [0, 1])
def test_a_batch_that_is_padded_is_refused_until_it_is_said_what_a_share_is_padded_to(processes: int) -> None:
    job = ElasticJob.join()
    with pytest.raises(ValueError, match=r"whole_batch=True\) if the loss depends on.*whole_batch=False"):
        script(job, num_workers=processes)
    job.close()


def test_t2_with_the_whole_batch_the_padded_length_is_that_of_one_process() -> None:
    conductor = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1)
    all_close(conductor.run(lambda job: script(job, whole_batch=True)), script(Plain()))


def check(samples: list[Any], batchify: Callable[[list[Any]], Any]) -> None:
    PaddingCheck(batchify, None).check(samples, batchify(samples), batchify)


def column(samples: list[Any]) -> Any:
    """GluonNLP's Pad() of one column."""
    longest = max(map(len, samples))
    return mx.nd.array([[*each, *[0] * (longest - len(each))] for each in samples])


def with_lengths(samples: list[Any]) -> Any:
    return column(samples), mx.nd.array([len(each) for each in samples])


def time_first(samples: list[Any]) -> Any:
    return column(samples).T


def to_a_multiple(samples: list[Any]) -> Any:
    return column([[*each, *[0] * (-len(each) % 2)] for each in samples])


def one_after_another(samples: list[Any]) -> Any:
    return mx.nd.array([number for each in samples for number in each])


WORDS = [[1], [1, 2], [1, 2, 3, 4], [1, 2, 3]]
LABELLED = [(words, number) for number, words in enumerate(WORDS)]
IMAGES = [np.zeros((3, size, 4), np.float32) for size in (5, 2, 7)]


CROSSED = [(words, [0] * (9 - 2 * len(words))) for words in WORDS]  # the longest sentence is the smallest sample


def to_shortest(samples: list[Any]) -> Any:
    shortest = min(map(len, samples))
    return mx.nd.array([each[:shortest] for each in samples])


def of_several_alone(samples: list[Any]) -> Any:
    """Nothing can be made of one of them."""
    return column(samples) * (1 / (len(samples) - 1))


def labelled(batchify: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    return lambda samples: [batchify([words for words, _ in samples]), mx.nd.array([y for _, y in samples])]


def largest(samples: list[Any]) -> Any:
    """Detection's: images of unequal sizes, in the corner of the largest."""
    whole = np.zeros((len(samples), 3, max(each.shape[1] for each in samples), 4))
    for place, each in zip(whole, samples, strict=True):
        place[:, : each.shape[1]] = each
    return mx.nd.array(whole)


@pytest.mark.parametrize(
    ("samples", "batchify"),
    [
        (WORDS, column),
        (WORDS, with_lengths),
        (WORDS, time_first),
        (WORDS, to_a_multiple),
        (WORDS, one_after_another),
        (LABELLED, labelled(column)),
        (LABELLED, labelled(with_lengths)),
        (IMAGES, largest),
        ([{"words": words, "y": 0} for words in WORDS], lambda samples: column([each["words"] for each in samples])),
        (["a b", "a", "a b c d"], lambda samples: column([list(map(len, each.split())) for each in samples])),
        (WORDS, lambda samples: {"words": column(samples)}),
        (CROSSED, lambda samples: column([words for words, _ in samples])),
        (WORDS, to_shortest),
        (WORDS, of_several_alone),
    ],
)
def test_padding_is_seen_in_what_becomes_of_one_sample_by_itself(
    samples: list[Any], batchify: Callable[[list[Any]], Any]
) -> None:
    with pytest.raises(ValueError, match="whole_batch"):
        check(samples, batchify)


@pytest.mark.parametrize(
    ("samples", "batchify", "says"),
    [
        (WORDS, column, "pads a batch .* whole_batch=True"),
        (WORDS, one_after_another, r"concatenates samples.* whole_batch=False.*step\(epoch.sum\(rows\)\)"),
        (LABELLED, labelled(one_after_another), "concatenates samples"),
        ([(words, [label]) for words, label in LABELLED], labelled(column), "pads a batch .* whole_batch=True"),
        (WORDS, of_several_alone, r"fails for a single sample.*\(ZeroDivisionError: .*whole_batch=True"),
    ],
    ids=["pads", "lays out", "lays a column out", "pads beside labels of one row", "fails"],
)
def test_what_is_asked_says_what_was_seen(samples: list[Any], batchify: Callable[[list[Any]], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check(samples, batchify)


def to_eight(samples: list[Any]) -> Any:
    return mx.nd.array([[*each, *[0] * (8 - len(each))] for each in samples])


def cropped(samples: list[Any]) -> Any:
    return mx.nd.array(np.stack([each[:, :2] for each in samples]))


def two_views(samples: list[Any]) -> Any:
    return mx.nd.array(np.stack([each[:, at : at + 2] for each in samples for at in (0, 0)]))


def side_by_side(samples: list[Any]) -> Any:
    """GluonCV's Append."""
    return [mx.nd.array(each).expand_dims(0) for each in samples]


@pytest.mark.parametrize(
    ("samples", "batchify"),
    [
        (WORDS, to_eight),
        (LABELLED, labelled(to_eight)),
        (LABELLED, labelled(side_by_side)),
        (IMAGES, cropped),
        (IMAGES, two_views),
        (IMAGES, side_by_side),
        ([[1, 2], [3, 4]], column),
        ([[1, 2]], column),
        ([(np.zeros(3), "a word"), (np.zeros(3), "another")], lambda samples: mx.nd.array([x for x, _ in samples])),
    ],
)
def test_what_becomes_of_a_sample_alike_in_every_share_need_not_be_said(
    samples: list[Any], batchify: Callable[[list[Any]], Any]
) -> None:
    assert check(samples, batchify) is None
    with pytest.raises(ValueError, match="whole_batch"):
        PaddingCheck(column, None).check(WORDS, column(WORDS), column)


def to_a_multiple_of_four(samples: list[Any]) -> Any:
    return column([[*each, *[0] * (-len(each) % 4)] for each in samples])


def test_batches_that_happen_to_be_padded_alike_do_not_answer_for_those_that_follow() -> None:
    padding = PaddingCheck(to_a_multiple_of_four, None)
    padding.check(WORDS, to_a_multiple_of_four(WORDS), to_a_multiple_of_four)
    longer = [*WORDS, [1, 2, 3, 4, 5]]
    with pytest.raises(ValueError, match="whole_batch"):
        padding.check(longer, to_a_multiple_of_four(longer), to_a_multiple_of_four)


@pytest.mark.parametrize("declared", [True, False])
def test_what_was_said_is_not_asked_for(declared: bool) -> None:
    tried = list[list[Any]]()

    def batchify(samples: list[Any]) -> Any:
        tried.append(samples)
        return column(samples)

    PaddingCheck(batchify, declared).check(WORDS, batchify(WORDS), batchify)
    PaddingCheck(None, None).check(WORDS, batchify(WORDS), batchify)  # Gluon's own stacks
    assert tried == [WORDS, WORDS]
