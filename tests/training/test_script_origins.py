"""What a script carries from the samples of one batch to the loss of the next is each worker's own, and told of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest

import mxnet as mx  # isort: skip
from conducted import Conductor, Death, Plain
from dyntrain.training.checks.findings import CHECKS_VARIABLE, IGNORE_VARIABLE
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.refused import RefusedByAll
from idioms import BATCH, CROSS, LINES, ORDER, SAMPLES, data, mlp, recurrent, weights
from mxnet import autograd, gluon
from test_script_idioms import all_close
from told import tells

LossOf = Callable[[Any, Any, Any, list[Any]], Any]
Keeps = Callable[[Any, Any, list[Any]], None]


def nothing(net: Any, x: Any, own: list[Any]) -> None:
    pass


def train(job: Any, loss_of: LossOf, keeps: Keeps = nothing, carried: Any = (), **epochs: Any) -> list[Any]:
    """`loss_of(net, x, y, own)`, and `keeps(net, x, own)` after the step: the list is the script's own."""
    net, own = mlp(), list(carried)
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1}, loss="sum")
    loader = job.loader(data(), BATCH, shuffle=True)
    for _ in job.epochs(2, **epochs):
        for x, y in loader:
            with autograd.record():
                loss = loss_of(net, x, y, own)
            loss.backward()
            trainer.step(BATCH)
            keeps(net, x, own)
    return weights(net)


def pool_of_images(net: Any, x: Any, y: Any, pool: list[Any]) -> Any:
    """As CycleGAN's discriminator has one."""
    shown = [each if len(pool) < 6 else pool[i].copy() for i, each in enumerate(x.expand_dims(1))]
    with autograd.pause():
        pool[:] = [*pool, *shown][-6:]
        images = mx.nd.concat(*shown, dim=0)
    return CROSS(net(images), y)


def queue_of_keys(net: Any, x: Any, y: Any, keys: list[Any]) -> Any:
    """As momentum contrast has one."""
    features = net(x)
    against = keys[0] if keys else mx.nd.ones((2, 3))
    keys[:] = [features[:2].detach()]
    return (features.expand_dims(1) - against.expand_dims(0)).square().sum((1, 2))


def from_a_centre(net: Any, x: Any, y: Any, centre: list[Any]) -> Any:
    """An array that was there before the loop, and is written to."""
    return (net(x) - centre[0]).square().sum(1)


def runs(net: Any, x: Any, centre: list[Any]) -> None:
    centre[0][:] = 0.9 * centre[0] + 0.1 * net(x).mean(0, keepdims=True)


def by_out(net: Any, x: Any, centre: list[Any]) -> None:
    mx.nd.mean(net(x), 0, keepdims=True, out=centre[0])


def a_place_of_it(net: Any, x: Any, centre: list[Any]) -> None:
    centre[0][0, 1] = x.max()


def through_a_row(net: Any, x: Any, centre: list[Any]) -> None:
    centre[0][0][:] = x[0, :3]


def through_another_shape(net: Any, x: Any, centre: list[Any]) -> None:
    centre[0].reshape((-1,))[1:2][:] = x[0, :1]


def through_each(net: Any, x: Any, centre: list[Any]) -> None:
    for row in centre[0]:
        x[0, :3].copyto(row)


def batch_before(net: Any, x: Any, y: Any, last: list[Any]) -> Any:
    """Mixed with samples of it, as far as there are as many."""
    before = last[0][: len(x)] if last and len(last[0]) >= len(x) else x
    last[:] = [x]
    return CROSS(net(0.7 * x + 0.3 * before), y)


def drawn_once(net: Any, x: Any, y: Any, noise: list[Any]) -> Any:
    """Each worker draws its own in its first batch."""
    if not noise:
        mx.random.seed(3)
        noise.append(mx.nd.random.normal(shape=(1, 4)))
    return CROSS(net(x + noise[0]), y)


def pushed_by(gradient_of: Callable[[Any, Any, Any], Any]) -> LossOf:
    """Samples are moved as those of the batch before would have been."""

    def pushed(net: Any, x: Any, y: Any, push: list[Any]) -> Any:
        before = push[0] if push else 0
        push[:] = [gradient_of(net, x, y).mean(axis=0, keepdims=True)]
        return CROSS(net(x + before), y)

    pushed.__name__ = gradient_of.__name__
    return pushed


def gradient_of_its_own(net: Any, x: Any, y: Any) -> Any:
    x = x.detach()
    x.attach_grad()
    with autograd.record():
        loss = CROSS(net(x), y)
    loss.backward()
    return x.grad


def gradient_one_batch_late(net: Any, x: Any, y: Any, kept: list[Any]) -> Any:
    """Asked for in the next batch, in which it is of other samples."""
    before = kept[0].grad.mean(axis=0, keepdims=True) if kept else 0
    x.attach_grad()
    kept[:] = [x]
    return CROSS(net(x + before), y)


def made_by_grad(net: Any, x: Any, y: Any) -> Any:
    x = x.detach()
    x.attach_grad()
    with autograd.record():
        loss = CROSS(net(x), y)
    return autograd.grad(loss, [x])[0]


def drawn_once_into(net: Any, x: Any, y: Any, noise: list[Any]) -> Any:
    if not noise:
        noise.append(mx.nd.zeros((1, 4)))
        mx.random.seed(3)
        mx.nd.random.normal(shape=(1, 4), out=noise[0])
    return CROSS(net(x + noise[0]), y)


def masked_once(net: Any, x: Any, y: Any, mask: list[Any]) -> Any:
    if not mask:
        mx.random.seed(3)
        mask.append(mx.nd.Dropout(mx.nd.ones((1, 4)), p=0.5))
    return CROSS(net(x * mask[0]), y)


CARRIES: list[tuple[LossOf, Keeps]] = [
    (pool_of_images, nothing),
    (queue_of_keys, nothing),
    (from_a_centre, runs),
    (from_a_centre, by_out),
    (from_a_centre, a_place_of_it),
    (from_a_centre, through_a_row),
    (from_a_centre, through_another_shape),
    (from_a_centre, through_each),
    (batch_before, nothing),
    (drawn_once, nothing),
    (drawn_once_into, nothing),
    (masked_once, nothing),
    (pushed_by(gradient_of_its_own), nothing),
    (pushed_by(made_by_grad), nothing),
    (gradient_one_batch_late, nothing),
]


def carried_by(loss_of: LossOf) -> list[Any]:
    return [mx.nd.zeros((1, 3))] if loss_of is from_a_centre else []


@pytest.mark.parametrize(("loss_of", "keeps"), CARRIES, ids=lambda each: each.__name__)
def test_t2_what_is_carried_from_batch_to_batch_is_told_of_where_it_is_used(loss_of: LossOf, keeps: Keeps) -> None:
    with tells("DT501"):
        train(ElasticJob.join(), loss_of, keeps, carried_by(loss_of))


@pytest.mark.parametrize(("loss_of", "keeps"), CARRIES, ids=lambda each: each.__name__)
def test_who_wants_each_worker_to_have_its_own_says_so(loss_of: LossOf, keeps: Keeps) -> None:
    """One worker alone trains as one process does."""
    own = train(ElasticJob.join(), loss_of, keeps, carried_by(loss_of), changes="epoch")
    all_close([own], train(Plain(), loss_of, keeps, carried_by(loss_of)))


def test_t2_hidden_states_that_go_on_without_rows_of_the_jobs_are_told_of() -> None:
    net, job = recurrent(), ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd")
    loader, hidden = job.loader(LINES, batch_sampler=ORDER), net.rnn.begin_state(batch_size=BATCH)

    def script() -> None:
        nonlocal hidden
        for _ in job.epochs(1):
            for words, following in loader:
                hidden = [state.detach() for state in hidden]
                with autograd.record():
                    output, hidden = net(words, hidden)
                    loss = CROSS(output, following)
                loss.backward()
                trainer.step(BATCH)

    with tells("DT501"):
        script()


def ring_of_keys(net: Any, x: Any, y: Any, queue: list[Any]) -> Any:
    """Written to at another place with each batch."""
    features = net(x)
    return (features.expand_dims(1) - queue[0][4:6].expand_dims(0)).square().sum((1, 2))


def moves_on(net: Any, x: Any, queue: list[Any]) -> None:
    at = len(queue)
    queue[0][2 * at : 2 * at + 2] = net(x)[:2]
    queue.append(None)


def test_t2_places_of_a_queue_are_told_from_each_other() -> None:
    """Rows 2 and 3 are written to after the first batch, 4 and 5 after the second."""
    with tells("DT501", "of step 2 may have something of step 1"):
        train(ElasticJob.join(), ring_of_keys, moves_on, [mx.nd.zeros((20, 3))])


def padded(net: Any, x: Any, y: Any, own: list[Any]) -> Any:
    """A buffer whose other columns stay what they are: right, though its rows seem to be of every batch so far."""
    with autograd.pause():
        if not own:
            own.append(mx.nd.ones((BATCH, 6)))
        own[0][: len(x), :4] = x
        whole = own[0].slice_axis(0, 0, len(x))
    return CROSS(net(whole[:, :4] * whole[:, 5:]), y)


def test_t2_a_buffer_with_constant_columns_is_told_of_and_trains_as_in_one_process() -> None:
    plan = Conductor({0: 1, 4: 3, 8: 2}, [Death(5, 1)], 1)
    with tells("DT501"):
        found = plan.run(lambda job: train(job, padded))
    all_close(found, train(Plain(), padded))


def test_who_wants_it_strict_or_silent_says_so(monkeypatch: pytest.MonkeyPatch, told: Callable[[], list[str]]) -> None:
    monkeypatch.setenv(CHECKS_VARIABLE, "strict")
    monkeypatch.setenv(IGNORE_VARIABLE, "DT604,DT612")
    with pytest.raises(RefusedByAll, match=r"test_script_origins.py:\d+: DT501: "):
        train(ElasticJob.join(), padded)
    for way in ({"ignore": ("DT501",)}, {"checks": "off"}):
        monkeypatch.delenv(CHECKS_VARIABLE, raising=False)
        job = ElasticJob.join(**way)  # type: ignore[arg-type]
        train(job, padded)
        assert not told()
        assert job.membership.findings.silenced


# ---- what is right


def of_this_batch(net: Any, x: Any, y: Any, own: list[Any]) -> Any:
    """What is kept is looked at, or was made of no sample's numbers, or anew in each batch."""
    if not own:
        own.extend([mx.nd.zeros(1), mx.nd.ones_like(x[:1]), mx.nd.array([[0.5] * 4])])
    centre = own[1] * 2 + own[2]
    loss = CROSS(net(x - centre), y)
    with autograd.pause():
        own[0] = own[0] + loss.sum()
    own[3:] = [mx.nd.random.uniform(shape=x.shape)]
    return loss + 0 * CROSS(net(own[3]), y)


def of_its_shape(net: Any, x: Any, y: Any, own: list[Any]) -> Any:
    """Made in the first batch, of how many numbers a sample has."""
    if not own:
        table = mx.nd.arange(40).reshape((4, 10))
        own += [mx.nd.slice_like(table, x, axes=(1,)), mx.nd.contrib.arange_like(x, axis=1)]
    return CROSS(net(x + own[0][:1] + own[1]), y)


def in_a_buffer(net: Any, x: Any, y: Any, own: list[Any]) -> Any:
    """Filled from its beginning, as far as there are samples, at once and one after another."""
    if not own:
        own += [mx.nd.zeros((BATCH, 4)), mx.nd.zeros((BATCH, 4)), mx.nd.zeros((BATCH, 4))]
    with autograd.pause():
        own[0][: len(x)] = x
        for i, row in enumerate(x):
            own[1][i] = row
            own[2][i][:] = row
    return CROSS(net(own[0][: len(x)] + own[1][: len(x)] + own[2][: len(x)]), y)


def numbers_of_numpys(net: Any, x: Any, y: Any, own: list[Any]) -> Any:
    if not own:
        own.append(mx.nd.zeros((BATCH, 4)))
    with autograd.pause():
        own[0][:] = np.ones((BATCH, 4))
        own[0][:] *= x.norm()
    return CROSS(net(x + own[0][: len(x)]), y)


def drawn_anew(net: Any, x: Any, y: Any, own: list[Any]) -> Any:
    """Into one array; what is drawn counts nothing, as each worker draws its own."""
    if not own:
        own.append(mx.nd.zeros((BATCH, 4)))
    mx.nd.random.normal(shape=(BATCH, 4), out=own[0])
    with autograd.pause():
        mask = mx.nd.Dropout(mx.nd.ones((1, 4)), p=0.5)
    return CROSS(net(x + 0 * own[0][: len(x)] * mask), y)


def features_of_a_picture(net: Any, x: Any, y: Any, own: list[Any]) -> Any:
    """Of a body that is called once, and drops nothing."""
    if not own:
        with autograd.pause():
            own.append(mx.nd.Dropout(mx.nd.ones((1, 4)), p=0.5))
    return CROSS(net(x + own[0]), y)


def looks_at_samples(net: Any, x: Any, own: list[Any]) -> None:
    """After the step, as a picture of what the net sees."""
    x.attach_grad()
    with autograd.record():
        loss = net(x).sum()
    loss.backward()


def plain(net: Any, x: Any, y: Any, own: list[Any]) -> Any:
    return CROSS(net(x), y)


RIGHT: list[tuple[LossOf, Keeps]] = [
    (of_this_batch, nothing),
    (of_its_shape, nothing),
    (in_a_buffer, nothing),
    (numbers_of_numpys, nothing),
    (drawn_anew, nothing),
    (features_of_a_picture, nothing),
    (plain, looks_at_samples),
]


@pytest.mark.parametrize(("loss_of", "keeps"), RIGHT, ids=lambda each: each.__name__)
def test_what_is_only_looked_at_or_of_no_earlier_sample_trains(loss_of: LossOf, keeps: Keeps) -> None:
    all_close([train(ElasticJob.join(), loss_of, keeps)], train(Plain(), loss_of, keeps))


class Centred(gluon.Block):
    """Its forward pass writes to a parameter: of the samples, or of the weights."""

    def __init__(self, of: str) -> None:
        super().__init__()
        self.of, self.dense = of, gluon.nn.Dense(3, in_units=4)
        self.centre = self.params.get("centre", shape=(1, 3), init="zeros", differentiable=False)

    def forward(self, x: Any) -> Any:
        features, centre = self.dense(x), self.centre.data().copy()
        with autograd.pause():
            new = (
                features.mean(0, keepdims=True)
                if self.of == "samples"
                else self.dense.weight.data().mean(1).expand_dims(0)
            )
            self.centre.set_data(0.9 * centre + 0.1 * new)
        return features - centre


def centred(of: str) -> int:
    """How many epochs there were."""
    net, job, came = Centred(of), ElasticJob.join(), 0
    net.initialize()
    trainer = job.trainer(net.collect_params(), "sgd")
    for epoch in job.epochs(2, samples=SAMPLES, global_batch=BATCH):
        for x, y in epoch.batches(data()):
            with autograd.record():
                loss = CROSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
        net(x)
        came += 1
    return came


def test_t2_a_parameter_that_the_forward_pass_writes_of_samples_is_told_of() -> None:
    """Several workers would have centres of their own, which no digest of weights shows."""
    with tells("DT501"):
        centred("samples")


def test_a_parameter_that_the_forward_pass_writes_of_weights_is_the_jobs() -> None:
    assert centred("weights") == 2


def test_arrays_of_the_datasets_own_are_not_those_of_a_batch() -> None:
    """Vectors of classes, of which a sample comes with one, and is held against all."""
    classes = [mx.nd.random.normal(shape=(4,)) for _ in range(3)]
    rows = [(mx.nd.array(x), int(y), classes[y]) for x, y in (data()[i] for i in range(SAMPLES))]
    net, job = mlp(), ElasticJob.join()
    trainer = job.trainer(net.collect_params(), "sgd")
    loader = job.loader(rows, BATCH, batchify_fn=list)
    for _ in job.epochs(2):
        for samples in loader:
            x, y = mx.nd.stack(*(x for x, _, _ in samples)), mx.nd.array([y for _, y, _ in samples])
            with autograd.record():
                loss = CROSS(mx.nd.dot(x, mx.nd.stack(*classes).T) + net(x), y)
            loss.backward()
            trainer.step(BATCH)
    assert len(rows) == SAMPLES


def test_what_another_job_of_the_process_has_computed_was_there_before_the_loop() -> None:
    kept: list[Any] = []

    def keeps(net: Any, x: Any, own: list[Any]) -> None:
        kept[:] = [x[:1]]

    def beside_it(net: Any, x: Any, y: Any, own: list[Any]) -> Any:
        return CROSS(net(x + own[0]), y)

    train(ElasticJob.join(), plain, keeps)
    was = kept[0].copy()
    all_close([train(ElasticJob.join(), beside_it, carried=kept)], train(Plain(), beside_it, carried=[was]))


def test_an_array_that_is_made_where_one_was_given_back_is_not_taken_for_it() -> None:
    """They have one address in memory."""

    def loss_of(net: Any, x: Any, y: Any, own: list[Any]) -> Any:
        for _ in range(50):
            del own[:]
            own.append(mx.nd.ones((1, 4)))
        return CROSS(net(x * own[0]), y)

    def keeps(net: Any, x: Any, own: list[Any]) -> None:
        own[0] = own[0] * x[:1]

    assert np.isfinite(train(ElasticJob.join(), loss_of, keeps)[0]).all()
