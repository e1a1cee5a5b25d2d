"""What a script differentiates, against what it told `job.trainer`: a mean that is taken for a sum counts once for each
worker. Each of these trains well in one process, and wrongly on the second worker, without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.loop.record import losses, operators
from dyntrain.training.worker.loop.record.multiples import multiples
from heads import LOSSES, Loss, decay, each, near_start
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, weights
from matrices import crossed
from mxnet import autograd, gluon
from rule_reports import tells
from test_script_idioms import all_close

import mxnet as mx  # isort: skip

CHANGES = ({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1)
Case = tuple[str, float, Any]  # a loss, what step() is told, what the trainer is told


def script(job: Any, loss_of: Loss, step: float = BATCH, loss: Any = None, hybrid: bool = False) -> list[Any]:
    net = mlp()
    if hybrid:
        net.hybridize()
    options = {} if loss is None else {"loss": loss}
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, **options)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                heads = loss_of(net, x, y)
            autograd.backward(heads) if isinstance(heads, list) else heads.backward()
            trainer.step(step)
    return weights(net)


RIGHT: list[Case] = [
    *((name, BATCH, None) for name in ("each", "total", "summed halves", "by_hand", "by own length", "time_first")),
    *((name, BATCH, None) for name in ("of sums", "the mean of two", "smaller_of_two", "a custom layer")),
    *((name, BATCH, "sum") for name in ("summed halves", "each held", "time, averaged", "one by one")),
    *((name, BATCH, "sum") for name in ("a function's", "a custom operator's")),
    *((name, 1, "mean") for name in ("mean", "halves", "mean, decayed", "stacked", "columns", "mean, held", "taken")),
    *((name, 1, "mean") for name in ("each held, mean", "looked_up", "indexed", "last axis", "each and a mean, mean")),
    *((name, 1, "mean") for name in ("mean, weighed", "time, summed", "the smaller, on average", "gaussian_prior")),
    *((name, 1, "mean") for name in ("a function's, mean", "a function that divides")),
    # divided twice, as GluonNLP's sentiment_analysis_cnn does
    *((name, BATCH, "mean") for name in ("mean", "mean, decayed", "columns, summed", "time, summed")),
    *((name, 1, "own") for name in ("each", "total", "by own length")),
    ("scaled", 128 * BATCH, "own"),
]


@pytest.mark.parametrize(("case", "hybrid"), crossed(RIGHT, [False, True], each=1))
def test_t2_what_was_told_of_the_loss_gives_the_weights_of_one_process(
    case: Case, hybrid: bool, reported_codes: Callable[[], list[str]]
) -> None:
    name, step, loss = case
    elastic = Conductor(*CHANGES).run(lambda job: script(job, LOSSES[name], step, loss, hybrid))
    all_close(elastic, script(Plain(), LOSSES[name], step))
    assert not reported_codes()


REFUSED: dict[str, list[Case]] = {
    "DT101": [(name, BATCH, None) for name in ("mean", "halves", "stacked", "last axis")] + [("mean", 8, "own")],
    "DT102": [("total", 1, "mean"), ("by_hand", 1, "mean")],
    "DT103": [("mean_and_sum", 1, loss) for loss in (None, "mean", "own")],
    "DT104": [
        ("counted", 1, "mean"), ("counted", 8, "own"), ("Dice", 1, "mean"),
        *((name, BATCH, None) for name in ("counted", "each divided", "by_largest")),
    ],
    "DT105": [("chosen", BATCH, None), ("chosen", 1, "mean")],
    "DT106": [("taken", BATCH, None), ("indexed", 8, "own")],
    "DT107": [("normalised", BATCH, None), ("normalised", 1, "mean")],
    "DT108": [
        *((name, BATCH, None) for name in ("class_weights", "each and a mean", "each and a mean, summed")),
        ("each and a sum", BATCH, None), ("each and a mean", BATCH, "mean"), ("each and a sum, mean", 1, "mean"),
    ],
    "DT109": [("root", 1, "mean"), ("norm", BATCH, None), ("norm", 1, "mean"), ("a product of two", BATCH, None)],
    "DT110": [
        *((name, BATCH, None) for name in ("decayed", "decay beside", "tasks that are weighed")), ("decayed", 8, "own"),
    ],
    "DT116": [("each", 1, "mean")],
    "DT401": [("mean", 5, "mean"), ("each", 1, None), ("scaled", 128 * BATCH, None)],
}  # fmt: skip
UNSEEN: dict[str, list[Case]] = {
    "DT111": [
        *((name, BATCH, None) for name in ("held", "held beside", "each held", "drawn_prior", "orthogonal")),
        ("Huber of weights", BATCH, None), ("held", 8, "own"),
    ],
    "DT114": [
        *((name, BATCH, None) for name in ("columns", "columns, summed", "time, averaged", "time, summed")),
        *((name, BATCH, None) for name in ("a function's", "a function's, mean", "a function that divides")),
        ("a custom operator's", BATCH, None),
    ],
}  # fmt: skip


def by_rule(cases: dict[str, list[Case]]) -> list[tuple[str, Case]]:
    return [(code, case) for code, those in cases.items() for case in those]


@pytest.mark.parametrize(("code", "case"), by_rule(REFUSED))
def test_a_loss_that_does_not_fit_what_was_told_is_refused_before_the_first_step(code: str, case: Case) -> None:
    name, step, loss = case
    with pytest.raises(ValueError, match=rf"test_script_heads.py:\d+: {code}: "):
        script(ElasticJob.join(), LOSSES[name], step, loss)


@pytest.mark.parametrize(("code", "case"), by_rule(UNSEEN))
def test_a_loss_that_does_not_show_what_it_is_is_told_of(code: str, case: Case) -> None:
    name, step, loss = case
    with tells(code):
        script(ElasticJob.join(), LOSSES[name], step, loss)


def test_every_loss_is_tried() -> None:
    tried = {name for name, _, _ in (*RIGHT, *(case for _, case in by_rule(REFUSED | UNSEEN)))}
    assert set(LOSSES) == tried | {"one each", "lengths"}, "these by workers that have one sample"


def test_every_operator_that_a_record_is_read_by_is_one_of_mxnets() -> None:
    """A name that MXNet has not would leave a loss unseen; which comparisons there are is made up of parts."""
    kinds = [value for name, value in vars(operators).items() if name.isupper() and isinstance(value, set)]
    assert kinds
    assert set().union(*kinds) - operators.COMPARISONS <= set(mx.operator.get_all_registered_operators())


def test_what_is_added_up_of_a_thousand_losses_is_looked_through() -> None:
    net, loss = mlp(), mx.nd.zeros(1)
    with autograd.record():
        out = net(mx.nd.ones((2, 4)))
        for _ in range(1500):
            loss = loss + out.sum() / 1500
    analysis = losses.Loss(loss)
    assert analysis.kinds == {losses.SUM}
    assert sorted(float(number) for _, number in multiples(analysis.graph)) == pytest.approx([1 / 1500, 1], rel=1e-4)


Gives = Callable[[Any], Any]


def given(job: Any, gives: Gives, whole: bool = False, loss: Any = None) -> list[Any]:
    """`gives` makes what backward() is told of a loss; of its mean, where that is `whole`."""
    net = mlp()
    options = {} if loss is None else {"loss": loss}
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, **options)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                losses = CROSS(net(x), y)
                losses = losses.mean() if whole else losses
            losses.backward(gives(losses))
            trainer.step(BATCH)
    return weights(net)


def halved(losses: Any) -> Any:
    return mx.nd.ones_like(losses) / 2


@pytest.mark.parametrize(("gives", "loss"), [(mx.nd.ones_like, None), (halved, "sum")])
def test_t2_gradients_that_backward_is_given_are_of_their_samples(gives: Gives, loss: Any) -> None:
    all_close(Conductor(*CHANGES).run(lambda job: given(job, gives, loss=loss)), given(Plain(), gives))


def test_gradients_that_backward_is_given_hide_no_mean() -> None:
    """WGAN in PyTorch's words."""
    with pytest.raises(ValueError, match="DT101"):
        given(ElasticJob.join(), mx.nd.ones_like, True)


def test_gradients_that_backward_is_given_are_told_of() -> None:
    with tells("DT114"):
        given(ElasticJob.join(), lambda x: mx.nd.ones_like(x) / len(x))


def adversaries(job: Any, one: Any, other: Any) -> list[Any]:
    """Two nets, of which the second makes its first step in the second batch; `one` and `other` are their losses, and
    whether they are told to be means.
    """
    nets = mlp(), mlp(seed=4)
    all_options = [{"loss": "mean"} if is_told else {} for _, is_told in (one, other)]
    trainers = [
        job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, **options)
        for net, options in zip(nets, all_options, strict=True)
    ]
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for i, (x, y) in epoch.enumerate(data()):
            for net, trainer, loss_of in zip(nets[: 1 + i % 2], trainers, (one[0], other[0]), strict=False):
                with autograd.record():
                    loss = loss_of(net, x, y)
                loss.backward()
                trainer.step(BATCH)
    return weights(*nets)


def both_first(job: Any) -> list[Any]:
    """Both losses are differentiated before either trainer steps."""
    one, other = mlp(), mlp(seed=4)
    first = job.trainer(one.collect_params(), "sgd", {"learning_rate": 0.1})
    second = job.trainer(other.collect_params(), "sgd", {"learning_rate": 0.1}, loss="mean")
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                losses = [CROSS(one(x), y), CROSS(other(x), y).mean()]
            autograd.backward(losses)
            first.step(BATCH)
            second.step(1)
    return weights(one, other)


def test_t2_losses_of_which_it_does_not_show_whose_they_are_train_as_they_were_told() -> None:
    all_close(Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(both_first), both_first(Plain()))


MEAN, MEAN_TOLD = (LOSSES["mean"], False), (LOSSES["mean"], True)
TOTAL, EACH = (LOSSES["total"], False), (each, False)
ALPHAS = (lambda net, x, y: decay(net), False)  # an architecture search's: a term of the weights alone


@pytest.mark.parametrize(("one", "other"), [(MEAN_TOLD, TOTAL), (EACH, MEAN_TOLD), (MEAN_TOLD, MEAN_TOLD)])
def test_t2_each_trainer_goes_by_what_it_was_told(one: Any, other: Any) -> None:
    def script(job: Any) -> list[Any]:
        return adversaries(job, one, other)

    all_close(Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(script), script(Plain()))


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [(MEAN_TOLD, MEAN, "DT101"), (EACH, MEAN, "DT101"), (EACH, ALPHAS, "DT110"), (ALPHAS, EACH, "DT110")],
)
def test_the_loss_of_a_trainer_is_looked_at_when_it_makes_its_first_step(one: Any, other: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        adversaries(ElasticJob.join(), one, other)


def test_a_penalty_with_a_backward_of_its_own_is_refused_as_one_in_the_loss() -> None:
    job, net = ElasticJob.join(), mlp()
    net.collect_params().setattr("grad_req", "add")
    trainer = job.trainer(net.collect_params(), "sgd")
    with pytest.raises(ValueError, match="DT110"):  # noqa: PT012
        for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(data()):
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                with autograd.record():
                    penalty = decay(net)
                penalty.backward()
                trainer.step(BATCH)


def test_what_the_person_said_of_a_loss_that_does_not_show_is_believed() -> None:
    assert len(script(ElasticJob.join(), LOSSES["norm"], BATCH, "sum")) == 4
    assert len(script(ElasticJob.join(checks="off"), each, 1, "own")) == 4


@pytest.mark.parametrize("name", ["one each", "lengths"])
def test_t2_a_worker_that_begins_with_a_share_of_one_sample_trains_as_the_others(name: str) -> None:
    results = Conductor({0: 5}, [], None).run(lambda job: script(job, LOSSES[name]))
    all_close(results, script(Plain(), LOSSES[name]))


def test_a_trainer_that_is_not_the_jobs_is_refused_by_the_name_of_what_it_trains() -> None:
    """A GAN of which one was forgotten: each worker's would train on its share alone."""
    job, net, other = ElasticJob.join(), mlp(), mlp()
    trainer = job.trainer(net.collect_params(), "sgd")
    forgotten = gluon.Trainer(other.collect_params(), "sgd")
    name = forgotten._params[0].name
    before = weights(other)
    with pytest.raises(ValueError, match=rf"a gluon.Trainer of {name}.*job.trainer"):  # noqa: PT012
        for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(data()):
                with autograd.record():
                    loss = CROSS(net(x) + other(x), y)
                loss.backward()
                trainer.step(BATCH)
                forgotten.step(BATCH)
    assert all((one == two).all() for one, two in zip(before, weights(other), strict=True))
    forgotten.step(BATCH, ignore_stale_grad=True)  # outside of the job's batches it is Gluon's own


def once(job: Any, term: Callable[[Any], Any]) -> list[Any]:
    """As the sentence says: over all workers the term counts once."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, loss="sum")
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            n = epoch.sum(len(x))
            with autograd.record():
                loss = CROSS(net(x), y).sum() + term(net) * len(x) / n
            loss.backward()
            trainer.step(BATCH)
    return weights(net)


@pytest.mark.parametrize("term", [decay, near_start])
@pytest.mark.parametrize("workers", [3, BATCH + 1])
def test_t2_a_term_of_the_weights_beside_a_sum_is_right_as_its_sentence_says(
    term: Callable[[Any], Any], workers: int
) -> None:
    """Also in an epoch's short last batch, and where some workers have no sample."""
    all_close(Conductor({0: 1, 4: workers}, [], 1).run(lambda job: once(job, term)), once(Plain(), term))
