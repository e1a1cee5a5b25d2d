"""What a script differentiates, against what it told `job.trainer`: a mean that is taken for a sum counts once for each
worker. Each of these trains well in one process, and wrongly on the second worker, without a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death, Plain
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.loop.record import losses, operators
from dyntrain.training.worker.loop.record.multiples import multiples
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, data, mlp, weights
from matrices import crossed
from mxnet import autograd, gluon
from test_script_idioms import all_close
from told import tells

import mxnet as mx  # isort: skip

CHANGES = ({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1)
Loss = Callable[[Any, Any, Any], Any]  # of (the net, a batch, its labels)


def script(job: Any, loss_of: Loss, step: float = BATCH, loss: Any = None, hybrid: bool = False) -> list[Any]:
    net = mlp()
    if hybrid:
        net.hybridize()
    told = {} if loss is None else {"loss": loss}
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, **told)
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                heads = loss_of(net, x, y)
            autograd.backward(heads) if isinstance(heads, list) else heads.backward()
            trainer.step(step)
    return weights(net)


def mean(net: Any, x: Any, y: Any) -> Any:
    return CROSS(net(x), y).mean()


def total(net: Any, x: Any, y: Any) -> Any:
    return CROSS(net(x), y).sum()


def each(net: Any, x: Any, y: Any) -> Any:
    return CROSS(net(x), y)


def halves(net: Any, x: Any, y: Any) -> Any:
    return (0.5 * CROSS(net(x), y).mean() + CROSS(net(x) * 0.5, y).mean() / 2).reshape((1,))


def summed_halves(net: Any, x: Any, y: Any) -> Any:
    return mx.nd.sum(CROSS(net(x), y)) * 0.5 - -(CROSS(net(x) * 0.5, y).sum())


def decay(net: Any) -> Any:
    return sum(((p.data() ** 2).sum() for p in net.collect_params().values()), mx.nd.zeros(1)) * 0.05


def decayed(net: Any, x: Any, y: Any) -> Any:
    return CROSS(net(x), y).sum() + decay(net)


def mean_decayed(net: Any, x: Any, y: Any) -> Any:
    return CROSS(net(x), y).mean() + decay(net)


def decay_beside(net: Any, x: Any, y: Any) -> Any:
    return [CROSS(net(x), y), decay(net)]


def counted(net: Any, x: Any, y: Any) -> Any:
    right = (y > 0).astype("float32")
    return (CROSS(net(x), y) * right).sum() / right.sum()


def one_less(net: Any, x: Any, y: Any) -> Any:
    """A Dice loss."""
    return 1 - counted(net, x, y)


def stacked(net: Any, x: Any, y: Any) -> Any:
    return mx.nd.stack(CROSS(net(x), y).mean(), CROSS(net(x) * 0.5, y).mean()).sum()


def columns(net: Any, x: Any, y: Any) -> Any:
    """A mean over the batch for each output, which is no number for each sample."""
    return (net(x) ** 2).mean(axis=0)


def summed_columns(net: Any, x: Any, y: Any) -> Any:
    return (net(x) ** 2).mean(axis=0).sum()


def chosen(net: Any, x: Any, y: Any) -> Any:
    return mx.nd.contrib.boolean_mask(CROSS(net(x), y), y >= 0).mean()


def near_start(net: Any) -> Any:
    """L2-SP, elastic weight consolidation: the weights are held near what they were, which is an array as data are."""
    with autograd.pause():
        start = mlp()
    pairs = zip(net.collect_params().values(), start.collect_params().values(), strict=True)
    return sum((((p.data() - at.data().detach()) ** 2).sum() for p, at in pairs), mx.nd.zeros(1)) * 0.05


def held(net: Any, x: Any, y: Any) -> Any:
    return CROSS(net(x), y).sum() + near_start(net)


def mean_held(net: Any, x: Any, y: Any) -> Any:
    return CROSS(net(x), y).mean() + near_start(net)


def held_beside(net: Any, x: Any, y: Any) -> Any:
    return [CROSS(net(x), y), near_start(net)]


def drawn_prior(net: Any, x: Any, y: Any) -> Any:
    """Bayes by backprop."""
    weight = net[0].weight.data()
    sampled = weight + mx.nd.array(np.full(weight.shape, 0.1)) * mx.nd.log1p(mx.nd.exp(weight))
    return CROSS(net(x), y).sum() - (sampled**2 / mx.nd.array([4.0])).sum()


def by_hand(net: Any, x: Any, y: Any) -> Any:
    """A linear model without a layer, of the batch."""
    weight = mx.nd.add_n(*[0.05 * p.data().sum() for p in net.collect_params().values()])
    return (((x * weight).sum(axis=1) - y.astype("float32")) ** 2).sum()


def divided_each(net: Any, x: Any, y: Any) -> Any:
    """A number for each sample, of which the batch is counted in all."""
    right = (y > 0).astype("float32")
    return CROSS(net(x), y) * right / (right.sum() + 1)


def class_weights(net: Any, x: Any, y: Any) -> Any:
    losses, positive = CROSS(net(x), y), (y > 0).astype("float32")
    ratio = (1 - positive).sum() / (positive.sum() + 1)
    return (losses * (1 + positive * ratio)).sum()


def by_own_length(net: Any, x: Any, y: Any) -> Any:
    """Each sample is divided by what is its own."""
    out = net(x) ** 2
    return (out.sum(axis=1) / (1 + (x > 0).sum(axis=1))).sum()


def taken(net: Any, x: Any, y: Any) -> Any:
    """SiamRPN: the places of the positives."""
    places = np.flatnonzero(y.asnumpy() >= 0)
    return CROSS(net(x), y).take(mx.nd.array(places)).mean()


def indexed(net: Any, x: Any, y: Any) -> Any:
    """Deep Q-learning: one place of each sample."""
    return ((net(x)[mx.nd.arange(len(y)), y] - 1) ** 2).mean()


def normalised(net: Any, x: Any, y: Any) -> Any:
    """GluonCV's segmentation: it divides by what it counts in its backward pass, whatever is made of its output."""
    out = mx.nd.SoftmaxOutput(net(x), y.astype("float32"), normalization="valid", use_ignore=True, ignore_label=-1)
    return -mx.nd.pick(mx.nd.log(out), y)


def last_axis(net: Any, x: Any, y: Any) -> Any:
    return CROSS(net(x), y).mean(axis=-1)


def each_and_mean(net: Any, x: Any, y: Any) -> Any:
    """AWD-LSTM's activation regularization."""
    out = net(x)
    return CROSS(out, y) + 0.3 * (out**2).mean()


def mean_of_both(net: Any, x: Any, y: Any) -> Any:
    return each_and_mean(net, x, y).mean()


def summed_with_mean(net: Any, x: Any, y: Any) -> Any:
    return each_and_mean(net, x, y).sum()


def each_and_sum(net: Any, x: Any, y: Any) -> Any:
    out = net(x)
    return CROSS(out, y) + 0.01 * (out**2).sum()


def averaged_with_sum(net: Any, x: Any, y: Any) -> Any:
    return each_and_sum(net, x, y).mean()


def by_largest(net: Any, x: Any, y: Any) -> Any:
    losses = CROSS(net(x), y)
    return losses / losses.max()


def root(net: Any, x: Any, y: Any) -> Any:
    return mx.nd.sqrt((net(x) ** 2).mean())


def weighed_mean(net: Any, x: Any, y: Any) -> Any:
    return CROSS(net(x), y).mean() * mx.nd.array([0.25])


def time_first(net: Any, x: Any, y: Any) -> Any:
    """Places of a sample along the first axis, of which each sample has its own number."""
    out, there = (
        net(x).T ** 2,
        mx.nd.broadcast_lesser(mx.nd.arange(3).reshape((3, 1)), y.astype("float32").expand_dims(0) + 1),
    )
    return (out * there).sum(axis=0) / there.sum(axis=0)


def time_averaged(net: Any, x: Any, y: Any) -> Any:
    return (net(x).T ** 2).mean(axis=0)


def time_summed(net: Any, x: Any, y: Any) -> Any:
    return (net(x).T ** 2).sum(axis=0).mean()


def of_sums(net: Any, x: Any, y: Any) -> Any:
    return mx.nd.stack(CROSS(net(x), y).sum(), 0.5 * CROSS(net(x) * 0.5, y).sum()).sum()


def orthogonal(net: Any, x: Any, y: Any) -> Any:
    weight = net[0].weight.data()
    return CROSS(net(x), y).sum() + ((mx.nd.dot(weight, weight.T) - mx.nd.eye(5)) ** 2).sum()


def huber(net: Any, x: Any, y: Any) -> Any:
    weight = net[0].weight.data()
    return CROSS(net(x), y).sum() + gluon.loss.HuberLoss()(weight[:3], mx.nd.ones((3, 4))).sum()


def looked_up(net: Any, x: Any, y: Any) -> Any:
    """A row of a table of weights for each sample, and the first two of the outputs."""
    table = net[1].weight.data()
    rows = mx.nd.take(table, y)
    return ((net(x).take(mx.nd.array([0, 1]), axis=1).sum(axis=1) - rows.sum(axis=1)) ** 2).mean() / 8


def held_each(net: Any, x: Any, y: Any) -> Any:
    """The term counts with each sample."""
    return CROSS(net(x), y) + near_start(net)


def mean_held_each(net: Any, x: Any, y: Any) -> Any:
    return held_each(net, x, y).mean()


def weighed_tasks(net: Any, x: Any, y: Any) -> Any:
    return CROSS(net(x), y).sum() + mx.nd.exp(net[1].bias.data().sum())


def hidden(net: Any, x: Any, y: Any) -> Any:
    return mx.nd.norm(net(x))


def of_two(net: Any, x: Any, y: Any) -> Any:
    """Two losses that meet in a product."""
    return CROSS(net(x), y).sum() * (net(x) ** 2).sum()


TOLD = [  # the loss, step's number, what the trainer is told
    (each, BATCH, None),
    (total, BATCH, None),
    (summed_halves, BATCH, "sum"),
    (summed_halves, BATCH, None),
    (mean, 1, "mean"),
    (mean, BATCH, "mean"),  # divided twice, as GluonNLP's sentiment_analysis_cnn does
    (halves, 1, "mean"),
    (mean_decayed, 1, "mean"),
    (mean_decayed, BATCH, "mean"),
    (stacked, 1, "mean"),
    (columns, 1, "mean"),
    (summed_columns, BATCH, "mean"),
    (mean_held, 1, "mean"),
    (mean_held_each, 1, "mean"),
    (held_each, BATCH, "sum"),
    (by_hand, BATCH, None),
    (by_own_length, BATCH, None),
    (looked_up, 1, "mean"),
    (taken, 1, "mean"),
    (indexed, 1, "mean"),
    (last_axis, 1, "mean"),
    (mean_of_both, 1, "mean"),
    (weighed_mean, 1, "mean"),
    (time_first, BATCH, None),
    (time_averaged, BATCH, "sum"),
    (time_summed, 1, "mean"),
    (time_summed, BATCH, "mean"),
    (of_sums, BATCH, None),
    (total, 1, "own"),
    (each, 1, "own"),
    (by_own_length, 1, "own"),
]


@pytest.mark.parametrize(("case", "hybrid"), crossed(TOLD, [False, True], each=1))
def test_t2_what_was_told_of_the_loss_gives_the_weights_of_one_process(
    case: tuple[Loss, float, Any], hybrid: bool
) -> None:
    loss_of, step, loss = case

    def elastic(job: Any) -> list[Any]:
        return script(job, loss_of, step, loss, hybrid)

    all_close(Conductor(*CHANGES).run(elastic), script(Plain(), loss_of, step))


@pytest.mark.parametrize(
    ("loss_of", "step", "loss", "says"),
    [
        (mean, BATCH, None, "DT101"),
        (halves, BATCH, None, "DT101"),
        (mean, 5, "mean", "DT401"),
        (mean, 8, "own", "DT101"),
        (total, 1, "mean", "DT102"),
        (each, 1, "mean", "DT116"),
        (counted, 1, "mean", "DT104"),
        (counted, 8, "own", "DT104"),
        (counted, BATCH, None, "DT104"),
        (decayed, BATCH, None, "DT110"),
        (decayed, 8, "own", "DT110"),
        (decay_beside, BATCH, None, "DT110"),
        (weighed_tasks, BATCH, None, "DT110"),
        (one_less, 1, "mean", "DT104"),
        (stacked, BATCH, None, "DT101"),
        (by_hand, 1, "mean", "DT102"),
        (divided_each, BATCH, None, "DT104"),
        (class_weights, BATCH, None, "DT108"),
        (taken, BATCH, None, "DT106"),
        (indexed, 8, "own", "DT106"),
        (normalised, BATCH, None, "DT107"),
        (normalised, 1, "mean", "DT107"),
        (last_axis, BATCH, None, "DT101"),
        (each_and_mean, BATCH, None, "DT108"),
        (each_and_mean, BATCH, "mean", "DT108"),
        (summed_with_mean, BATCH, None, "DT108"),
        (each_and_sum, BATCH, None, "DT108"),
        (averaged_with_sum, 1, "mean", "DT108"),
        (by_largest, BATCH, None, "DT104"),
        (root, 1, "mean", "DT109"),
        (chosen, BATCH, None, "DT105"),
        (chosen, 1, "mean", "DT105"),
        (hidden, BATCH, None, "DT109"),
        (hidden, 1, "mean", "DT109"),
        (of_two, BATCH, None, "DT109"),
        (each, 1, None, "DT401"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_loss_that_does_not_fit_what_was_told_is_refused_before_the_first_step(
    loss_of: Loss, step: float, loss: Any, says: str
) -> None:
    with pytest.raises(ValueError, match=rf"test_script_heads.py:\d+: {says}: "):
        script(ElasticJob.join(), loss_of, step, loss)


@pytest.mark.parametrize(
    ("loss_of", "step", "loss", "says"),
    [
        (columns, BATCH, None, "DT114"),
        (summed_columns, BATCH, None, "DT114"),
        (time_averaged, BATCH, None, "DT114"),
        (time_summed, BATCH, None, "DT114"),
        (held, BATCH, None, "DT111"),
        (held, 8, "own", "DT111"),
        (held_beside, BATCH, None, "DT111"),
        (held_each, BATCH, None, "DT111"),
        (drawn_prior, BATCH, None, "DT111"),
        (orthogonal, BATCH, None, "DT111"),
        (huber, BATCH, None, "DT111"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_loss_that_does_not_show_what_it_is_is_told_of(loss_of: Loss, step: float, loss: Any, says: str) -> None:
    with tells(says):
        script(ElasticJob.join(), loss_of, step, loss)


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
    found = losses.Loss(loss)
    assert found.kinds == {losses.SUM}
    assert sorted(float(number) for _, number in multiples(found.graph)) == pytest.approx([1 / 1500, 1], rel=1e-4)


Gives = Callable[[Any], Any]


def given(job: Any, gives: Gives, whole: bool = False, loss: Any = None) -> list[Any]:
    """`gives` makes what backward() is told of a loss; of its mean, where that is `whole`."""
    net = mlp()
    told = {} if loss is None else {"loss": loss}
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1, "momentum": 0.9}, **told)
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
    """Two nets, of which the second makes its first step in the second batch; `one` and `other` are their losses."""
    nets = mlp(), mlp(seed=4)
    told = [{"loss": "mean"} if loss is mean_told else {} for loss in (one, other)]
    trainers = [
        job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, **said)
        for net, said in zip(nets, told, strict=True)
    ]
    for epoch in job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH):
        for i, (x, y) in epoch.enumerate(data()):
            for net, trainer, loss_of in zip(nets[: 1 + i % 2], trainers, (one, other), strict=False):
                with autograd.record():
                    loss = loss_of(net, x, y)
                loss.backward()
                trainer.step(BATCH)
    return weights(*nets)


def mean_told(net: Any, x: Any, y: Any) -> Any:
    return mean(net, x, y)


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


def alphas(net: Any, x: Any, y: Any) -> Any:
    """Of an architecture search: a term of the weights alone, with a trainer of its own."""
    return decay(net)


@pytest.mark.parametrize(("one", "other"), [(mean_told, total), (each, mean_told), (mean_told, mean_told)])
def test_t2_each_trainer_goes_by_what_it_was_told(one: Loss, other: Loss) -> None:
    def script(job: Any) -> list[Any]:
        return adversaries(job, one, other)

    all_close(Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1).run(script), script(Plain()))


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        (mean_told, mean, "DT101"),
        (each, mean, "DT101"),
        (each, alphas, "DT110"),
        (alphas, each, "DT110"),
    ],
)
def test_the_loss_of_a_trainer_is_looked_at_when_it_makes_its_first_step(one: Loss, other: Loss, says: str) -> None:
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
    assert len(script(ElasticJob.join(), hidden, BATCH, "sum")) == 4
    assert len(script(ElasticJob.join(checks="off"), each, 1, "own")) == 4


def one_by_one(net: Any, x: Any, y: Any) -> list[Any]:
    """Tree-LSTM and CRF examples: nets that take one sample."""
    return [CROSS(net(x[i : i + 1]), y[i : i + 1]).mean() / 1.0 for i in range(len(x))]


def one_each(net: Any, x: Any, y: Any) -> list[Any]:
    return [CROSS(net(x[i : i + 1]), y[i : i + 1]) for i in range(len(x))]


def lengths(net: Any, x: Any, y: Any) -> Any:
    """One for each sample, which does not show where there is one sample."""
    return mx.nd.sqrt((net(x) ** 2).sum(axis=1) + 1)


@pytest.mark.parametrize("loss_of", [one_each, lengths])
def test_t2_a_worker_that_begins_with_a_share_of_one_sample_trains_as_the_others(loss_of: Loss) -> None:
    found = Conductor({0: 5}, [], None).run(lambda job: script(job, loss_of))
    all_close(found, script(Plain(), loss_of))


def test_t2_losses_of_one_sample_each_are_a_sum_where_that_is_said() -> None:
    all_close(
        Conductor(*CHANGES).run(lambda job: script(job, one_by_one, BATCH, "sum")), script(Plain(), one_by_one, BATCH)
    )


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
