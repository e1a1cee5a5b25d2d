"""What a script cannot do is said in a sentence before anything is trained; and the small things it asks of the job."""

from __future__ import annotations

import copy
import gc
import math
import pickle
from collections.abc import Sequence
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from conducted import Conductor, Death
from dyntrain.controller.contract.messages import MOST_WORKERS
from dyntrain.training.job import ElasticJob
from dyntrain.training.worker.loop.agreed.batch_size import SampleCounts, UnclearBatchSize, find_divisor
from dyntrain.training.worker.loop.batch.consensus import StepConsensus
from dyntrain.training.worker.loop.record.fingerprints import FINGERPRINT_SIZE
from dyntrain.training.worker.state.attributes import AttributeTooLarge
from idioms import BATCH, CROSS, EPOCHS, SAMPLES, Rows, data, labels, mlp, numbers, train, weights
from mxnet import autograd, gluon
from waiting import wait_for

import mxnet as mx  # isort: skip


def job_of(net: Any, **options: Any) -> tuple[ElasticJob, Any]:
    job = ElasticJob.join()
    return job, job.trainer(net.collect_params(), **{"optimizer": "sgd", **options})


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        ({"update_on_kvstore": True}, "leave it out"),
        ({"optimizer": "sgld"}, "draws its noise anew on each worker"),
        ({"compression_params": {"type": "2bit"}}, "leave compression_params out"),
        ({"kvstore": object()}, "leave kvstore= out"),
        ({"kvstore": "dist_async"}, "leave kvstore= out"),
        ({"loss": "product"}, "'sum'"),
    ],
)
def test_a_trainer_that_no_joiner_could_share_is_refused_with_what_to_do(options: Any, instead: str) -> None:
    with pytest.raises(ValueError, match=instead):
        job_of(mlp(), **options)


def test_an_optimizer_that_keeps_sums_of_its_own_is_refused_beside_another_trainer() -> None:
    job, _ = job_of(mlp(), optimizer="lbsgd")
    job.trainer(mlp().collect_params(), "sgd")
    with pytest.raises(ValueError, match="lbsgd has sums of gradients"):
        next(job.epochs(1, samples=SAMPLES, global_batch=BATCH))


@pytest.mark.parametrize(("batch", "workers", "size"), [(6, 3, 2), (6, 2, 3), (3, 3, 1), (32, 4, 8)])
def test_a_constant_that_happens_to_be_a_shares_size_is_refused_in_the_first_batch(
    batch: int, workers: int, size: int
) -> None:
    """A Horovod script's batch size, or 1 for a loss that is divided already: taken for a count of the samples in hand
    it would be divided by the whole batch.
    """

    def script(job: Any) -> None:
        net = mlp()
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        for epoch in job.epochs(1, samples=2 * batch, global_batch=batch):
            for x, y in epoch.batches([(x, 1) for x in numbers(2 * batch, 4)]):
                assert epoch.step_number == 0
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                trainer.step(size)

    with pytest.raises(ValueError, match=rf"DT401: step\({size}\) is no batch size"):
        Conductor({0: workers}).run(script)


def test_sparse_gradients_are_refused_before_the_job_begins() -> None:
    net = gluon.nn.Embedding(5, 3, sparse_grad=True)
    net.initialize()
    with pytest.raises(ValueError, match="sparse_grad=False"):
        job_of(net)


def test_an_optimizer_with_a_large_array_beside_its_states_is_refused() -> None:
    job, trainer = job_of(mlp())
    trainer.optimizer.table = np.zeros(5000)
    with pytest.raises(AttributeTooLarge, match=r"SGD\.table.*create_state"):
        next(job.epochs(1, samples=SAMPLES, global_batch=BATCH))


def test_a_trainer_that_is_made_too_late_or_not_at_all_is_refused() -> None:
    net = mlp()
    job, _ = job_of(net)
    job.epochs(1, samples=SAMPLES, global_batch=BATCH)
    with pytest.raises(RuntimeError, match="workers that join"):
        job.trainer(net.collect_params(), "sgd")
    with pytest.raises(ValueError, match=r"job\.trainer"):
        ElasticJob.join().epochs(1, samples=SAMPLES, global_batch=BATCH)


def test_a_dataset_of_another_length_and_a_loader_with_batches_of_its_own_are_refused() -> None:
    job, _ = job_of(mlp())
    with pytest.raises(TypeError, match=r"job\.loader\(\.\.\.\)"):
        next(next(job.epochs(1, samples=7, global_batch=BATCH)).batches(gluon.data.DataLoader(data(), BATCH)))
    job, _ = job_of(mlp())
    batches = next(job.epochs(1, samples=7, global_batch=BATCH)).batches(data())
    with pytest.raises(ValueError, match=f"{SAMPLES} samples.*samples=7"):
        next(batches)


def first_batch(job: ElasticJob, net: Any) -> Any:
    batches = next(job.epochs(1, samples=SAMPLES, global_batch=BATCH)).batches(data())
    x, y = next(batches)
    with autograd.record():
        loss = CROSS(net(x), y)
    loss.backward()
    return batches


def test_a_wrong_order_of_calls_says_what_is_missing() -> None:
    net = mlp()
    job, trainer = job_of(net)
    with pytest.raises(RuntimeError, match="outside of the loop"):
        trainer.step(BATCH)
    batches = first_batch(job, net)
    with pytest.raises(RuntimeError, match=r"without trainer\.allreduce_grads"):
        trainer.update(BATCH)
    trainer.step(BATCH)
    with pytest.raises(RuntimeError, match="once for each batch"):
        trainer.step(BATCH)
    next(batches)
    with pytest.raises(RuntimeError, match="grad_req='add'"):
        next(batches)


def test_a_sum_without_its_update_is_noticed() -> None:
    net = mlp()
    job, trainer = job_of(net)
    batches = first_batch(job, net)
    trainer.allreduce_grads()
    with pytest.raises(RuntimeError, match=r"not followed by trainer\.update"):
        next(batches)


def test_a_clip_over_two_trainers_is_told_to_have_one() -> None:
    net, other = mlp(), mlp()
    job, trainer = job_of(net)
    second = job.trainer(other.collect_params(), "sgd")
    x, y = next(next(job.epochs(1, samples=SAMPLES, global_batch=BATCH)).batches(data()))
    with autograd.record():
        loss = CROSS(net(x) + other(x), y)
    loss.backward()
    trainer.allreduce_grads()
    with pytest.raises(RuntimeError, match="norm over the gradients of several trainers needs one trainer"):
        second.allreduce_grads()


@pytest.mark.parametrize(
    ("options", "n", "sentence"),
    [
        ({}, 1, "DT401"),
        ({}, 5, r"DT401: .*; loss='own' takes any other\."),
        ({"loss": "own"}, 0, "DT406"),
    ],
)
def test_a_number_that_is_no_batch_size_is_refused_before_it_changes_a_weight(
    options: Any, n: int, sentence: str
) -> None:
    net = mlp()
    job, trainer = job_of(net, **options)
    before = [p.data().asnumpy() for p in net.collect_params().values()]
    first_batch(job, net)
    with pytest.raises(ValueError, match=sentence):
        trainer.step(n)
    assert all(
        np.array_equal(a, p.data().asnumpy()) for a, p in zip(before, net.collect_params().values(), strict=True)
    )


def counts(here: int, all_: int, batches: int = 1, batch: int = 16) -> SampleCounts:
    return SampleCounts(
        nominal=(batch, batch * batches),
        full=(batch, batch * batches),
        own=(here, here * batches),
        all_=(all_, all_ * batches),
    )


def test_one_number_that_says_two_things_is_told_apart_by_what_it_said_before() -> None:
    """8 of 16 samples here, two batches added up: 16 is one batch of all workers, and both batches of this one."""
    shared = counts(8, 16, 2)
    with pytest.raises(UnclearBatchSize, match="DT402"):
        find_divisor(16, shared, None)
    by, sums = find_divisor(32, counts(16, 16, 2), None)  # alone: the script counts both batches
    assert by == 32
    assert find_divisor(16, shared, sums)[0] == 32, "it counts its own samples"
    by, constants = find_divisor(16, counts(16, 16, 2), None)
    assert by == 16
    assert find_divisor(16, shared, constants)[0] == 16, "it names one batch"


def test_the_last_batch_is_divided_by_what_the_script_says() -> None:
    assert find_divisor(16, counts(3, 5), None)[0] == 16, "the constant, as in one process"
    assert find_divisor(3, counts(3, 5), None)[0] == 5, "the samples in hand"
    assert find_divisor(5, counts(3, 5), None)[0] == 5


def test_an_epoch_is_its_number() -> None:
    """So that a script's own lines that count, compare and print it need no edit."""
    job, _ = job_of(mlp())
    epoch = next(job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH))
    assert (epoch == 0, (epoch + 1) % 2, epoch in {0, 3}, f"{epoch} {epoch:03d}", "%d" % epoch) == (  # noqa: UP031
        True,
        1,
        True,
        "0 000",
        "0",
    )


def counted(job: Any, body: Any, **options: Any) -> list[int]:
    """Trains; gives `body` each epoch when its batches are done, and returns the steps of each epoch."""
    net = mlp()
    trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    steps_of_epochs = []

    def counts(_: Any) -> None:
        steps_of_epochs[-1] += 1

    train(
        job,
        net,
        trainer,
        begins=lambda _: steps_of_epochs.append(0),
        after=counts,
        ends=lambda epoch: body(job, epoch),
        **options,
    )
    return steps_of_epochs


def stop_after_the_first(job: Any, epoch: Any) -> None:
    if epoch.rank == 0:
        job.stop()


def test_a_job_that_its_script_stops_ends_on_every_worker_at_the_next_boundary() -> None:
    assert Conductor({0: 3}).run(lambda job: counted(job, stop_after_the_first)) == [[4]] * 3
    assert counted(ElasticJob.join(), stop_after_the_first) == [4]


@pytest.mark.parametrize(("stops", "times"), [(stop_after_the_first, 2), (lambda job, _: job.stop(), 0)])
def test_a_job_that_another_workers_word_stops_says_so(
    stops: Any, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a metric of one's own samples decides, the job ends after another epoch with another number of workers."""
    assert Conductor({0: 3}).run(lambda job: counted(job, stops)) == [[4]] * 3
    assert caplog.text.count("stops here by another worker's job.stop()") == times


@pytest.mark.parametrize(("steps", "expected"), [(3, [3]), (4, [4]), (6, [4, 2]), (100, [4, 4, 4])])
def test_a_limit_of_steps_ends_the_job_exactly_there(steps: int, expected: list[int]) -> None:
    def nothing(job: Any, epoch: Any) -> None:
        pass

    for result in Conductor({0: 2}, segment_steps=None).run(lambda job: counted(job, nothing, steps=steps)):
        assert result == expected


def added_up(steps: Sequence[int]) -> None:
    """What the tallies of workers at these steps make of the sum that MXNet's servers come to, which is of floats."""
    tallies = [StepConsensus(step, [0.0] * 4, [0.0] * 4, [0.0] * FINGERPRINT_SIZE) for step in steps]
    total = sum(consensus.vote.astype(np.float32) for consensus in tallies)
    tallies[0].vote = mx.nd.array(total, dtype="float64")
    tallies[0].read_sums(len(steps))


@pytest.mark.parametrize("step", [0, 2366, 4097, 10_000_001])
def test_workers_at_one_step_are_told_from_those_at_several_however_long_the_job(step: int) -> None:
    for workers in (2, 3, MOST_WORKERS):
        added_up([step] * workers)
        with pytest.raises(RuntimeError, match="at different batches"):
            added_up([step + 1, *[step] * (workers - 1)])


def test_t2_what_one_worker_refuses_none_has_trained_on() -> None:
    """Its probe of the first batch came to an end, another one's had no time."""
    after = []

    def script(job: Any) -> None:
        net = mlp()
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        before = weights(net)
        for epoch in job.epochs(1, samples=SAMPLES, global_batch=BATCH):
            for x, y in epoch.batches(Rows(numbers(SAMPLES, 4), labels(3))):
                if epoch.rank == 1:
                    job.membership.findings.find("DT201", name="w", share=0.5, whole=12, first=5, rest=7)
                with autograd.record():
                    loss = CROSS(net(x), y)
                loss.backward()
                try:
                    trainer.step(BATCH)
                finally:
                    after.append((before, weights(net)))

    conductor = Conductor({0: 3})
    with pytest.raises(ValueError, match=r"DT201|another worker"):
        conductor.run(script)
    assert sorted("DT201" in str(error) for error in conductor.errors) == [False, False, True]
    for before, now in after:
        for mine, theirs in zip(before, now, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_what_is_reduced_is_one_number_on_every_worker() -> None:
    def script(job: Any) -> Any:
        reduced = []

        def body(job: Any, epoch: Any) -> None:
            reduced.append((epoch.reduce("sum", epoch.rank + 1), epoch.reduce("mean", epoch.rank * 6, 2)))

        counted(job, body)
        return reduced

    assert Conductor({0: 3}).run(script) == [[(6.0, 3.0)] * EPOCHS] * 3
    assert script(ElasticJob.join()) == [(1.0, 0.0)] * EPOCHS


@pytest.mark.parametrize(
    ("plan", "deaths", "joins"), [({0: 2, 2: 3}, (), 2), ({0: 3}, (Death(3, 1),), 3)], ids=["joined", "replaced"]
)
def test_who_joins_in_mid_epoch_has_nobody_to_reduce_with_before_its_first_batch(
    plan: dict[int, int], deaths: tuple[Death, ...], joins: int
) -> None:
    """The others are in their batches: it would wait for them, and they for its gradients."""

    def script(job: Any) -> Any:
        net = mlp()
        trainer = job.trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        readiness = []

        def begins(epoch: Any) -> None:
            readiness.append((job.position.step, epoch.reduce("ready", 1.0)))

        train(job, net, trainer, begins=begins)
        return readiness

    by_beginning = {result[0][0]: result for result in Conductor(plan, deaths).run(script)}
    assert sorted(by_beginning) == [0, joins]
    (_, alone), (later, together) = by_beginning[joins][:2]
    assert math.isnan(alone)
    assert together == 3.0
    assert (later, 3.0) in by_beginning[0], "and at the next epoch's beginning all have one number"


def test_different_things_reduced_at_once_are_noticed() -> None:
    def body(job: Any, epoch: Any) -> None:
        epoch.reduce("loss" if epoch.rank else "accuracy", 1.0)

    with pytest.raises(RuntimeError, match="other workers sum another name"):
        Conductor({0: 2}).run(lambda job: counted(job, body))


def test_leaving_the_loop_early_says_what_to_do_instead(caplog: pytest.LogCaptureFixture) -> None:
    net = mlp()
    job, _ = job_of(net)
    epochs = job.epochs(EPOCHS, samples=SAMPLES, global_batch=BATCH)  # so that the source does not show it
    for _epoch in epochs:
        break
    del _epoch, epochs
    gc.collect()
    wait_for(lambda: "job.stop()" in caplog.text, what="it says so once no error came up")


def test_an_epoch_in_a_checkpoint_of_the_scripts_own_is_its_number() -> None:
    job, _ = job_of(mlp())
    epoch = next(job.epochs(3, start=2, samples=SAMPLES, global_batch=BATCH))
    pickled = pickle.loads(pickle.dumps({"epoch": epoch}))["epoch"]  # noqa: S301  # our own
    for saved in (pickled, copy.deepcopy(epoch)):
        assert type(saved) is int
        assert saved == 2
