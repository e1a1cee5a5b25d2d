"""Settings of a loop over epochs: the arguments of `job.epochs()`, completed from the script's loaders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from dyntrain.training.sampling.batching import Batching, FixedGlobal, PerWorker
from dyntrain.training.sampling.shard_order import ShardOrder
from dyntrain.training.sampling.shares import Shares
from dyntrain.training.sampling.whole import whole
from dyntrain.training.worker.data.loading import JobLoaders
from dyntrain.training.worker.data.sampled import SampledBatches

Changes = Literal["any", "epoch"]  # where the membership may change: at every boundary, or at ends of epochs

ONE_SAMPLE = FixedGlobal(1)
SEVERAL_DATASETS_REMEDY = (
    "alternate datasets by a batch_sampler over one dataset, read datasets in parallel as a dataset of pairs, and "
    "validate with a gluon DataLoader"
)


@dataclass(frozen=True)
class LoopConfig:
    """Settings of one loop over epochs. Fields without a comment have the same meaning as the arguments of
    `job.epochs`.
    """

    epochs: int = 0
    start: int = 0  # the script's number of the loop's first epoch
    base: int = 0  # number of epochs in the loops before this one
    name: str | None = None
    another: bool = False  # whether another loop over epochs may follow
    samples: int = 0  # samples in an epoch
    drawn_from: int | None = None  # size of the dataset if an epoch leaves some samples out
    batching: Batching = ONE_SAMPLE
    drawn: SampledBatches | None = None  # batches of the script's own sampler
    seed: int = 0
    steps: int | None = None
    local_batch_at_most: int | None = None
    average_statistics: bool = True
    changes: Changes = "any"  # where the membership may change
    size: int = 1  # workers that the script's numbers are for
    probe: bool = True

    @property
    def end_epoch(self) -> int:
        """First epoch after the loop, counted over the whole job."""
        return self.base + self.epochs

    @property
    def epoch_shift(self) -> int:
        """The number that a script gives an epoch, minus the number of the job's epochs before that epoch.

        The order of the samples and the random draws depend on the script's number of the epoch.
        """
        return self.start - self.base

    @property
    def largest_batch(self) -> int:
        """Size of the largest batch over all workers; with `PerWorker`, size of one worker's largest batch."""
        return self.batching.batch if self.drawn is None else self.drawn.largest

    def shares(self, sequence: ShardOrder | None) -> Shares:
        batches = None if self.drawn is None else self.drawn.batches
        return Shares(
            self.samples, self.end_epoch, self.seed, self.batching, sequence, self.drawn_from, batches, self.epoch_shift
        )

    def shared_settings(self, sequence: ShardOrder | None, group: int) -> str:
        """Return as one text those settings that must be equal on all workers.

        Settings that are not in the text, such as the seed, are compared by the coordinator one by one.
        """
        order = self.drawn or sequence
        return ", ".join(
            [
                str(self.batching),
                f"running statistics {'averaged' if self.average_statistics else 'left to each'}",
                *([str(order)] if order else []),
                *([f"updates of {group} batches"] if group > 1 else []),
                *([f"from epoch {self.start}"] if self.start else []),
                *(["changes at ends of epochs"] if self.changes == "epoch" else []),
                *([f"phase {self.name}"] if self.name else []),
                *([f"numbers for {self.size} workers"] if self.size > 1 else []),
            ]
        )


def loop_config_of(
    loading: JobLoaders,
    epochs: int,
    *,
    start: int,
    base: int,
    name: str | None,
    another: bool,
    samples: int | None,
    global_batch: int | None,
    batching: Batching | None,
    seed: int,
    steps: int | None,
    local_batch_at_most: int | None,
    average_statistics: bool,
    changes: Changes,
    size: int,
    probe: bool,
) -> LoopConfig:
    """Make the loop's settings from the script's arguments and loaders.

    Raises ValueError if arguments or loaders are wrong or contradict each other.
    """
    epochs, start, seed = whole("epochs", epochs), whole("start", start, 0), whole("seed", seed, 0)
    samples, global_batch = _if_given("samples", samples), _if_given("global_batch", global_batch)
    steps, local_batch_at_most = _if_given("steps", steps), _if_given("local_batch_at_most", local_batch_at_most)
    if not (batching is None or isinstance(batching, Batching)):
        raise ValueError(
            f"batching={batching!r}: must be PerWorker(64) or FixedGlobal(64), which equals global_batch=64"
        )
    batches = loading.sampler_batches(seed)
    if batches is not None:
        if batching is not None:
            raise ValueError(
                "batching= beside a batch_sampler, which already sets the size of a batch: leave batching= out"
            )
        global_batch = global_batch or batches.largest
    samples, global_batch = _samples_and_batch(loading, samples, global_batch, batching)
    if start >= epochs:
        raise ValueError(f"epochs ({epochs}) must be larger than start ({start})")
    if samples < 1:
        raise ValueError("the dataset has no samples")
    if changes not in get_args(Changes):
        raise ValueError(f"changes={changes!r}: must be 'any' (changes at any boundary) or 'epoch' (at ends of epochs)")
    batching = batching.of_size(size) if isinstance(batching, PerWorker) else batching or FixedGlobal(global_batch or 0)
    epoch_samples = _samples_of_epoch(loading, samples, batching.batch) if batches is None else batches.taken
    return LoopConfig(
        epochs - start,
        start,
        base,
        name,
        another,
        epoch_samples,
        samples if epoch_samples < samples else None,
        batching,
        batches,
        seed,
        steps,
        local_batch_at_most,
        average_statistics,
        changes,
        size,
        probe,
    )


def _if_given(name: str, value: int | None) -> int | None:
    return None if value is None else whole(name, value)


def _samples_of_epoch(loading: JobLoaders, samples: int, batch: int) -> int:
    """Return the number of samples in an epoch, without an incomplete last batch if the loaders discard it.

    Raises ValueError if some loaders discard an epoch's last incomplete batch and other loaders keep it.
    """
    discard_settings = {loader.discards for loader in loading.loaders}
    if len(discard_settings) > 1:
        raise ValueError("one loader keeps the last batch, another discards it: set last_batch alike for all loaders")
    return samples // batch * batch if True in discard_settings else samples


def _samples_and_batch(
    loading: JobLoaders, samples: int | None, global_batch: int | None, batching: Batching | None
) -> tuple[int, int | None]:
    """Return the number of samples and the global batch, each from the script's argument or from its loaders.

    Raises ValueError if arguments and loaders contradict each other.
    """
    batch_sizes = {loader.batch_size for loader in loading.loaders} - {None}
    if global_batch is None and batching is None and len(batch_sizes) == 1:
        global_batch = next(iter(batch_sizes))
    sample_counts = {loader.samples for loader in loading.loaders}
    if len(sample_counts) > 1:
        raise ValueError(
            f"loaders of {' and '.join(map(str, sorted(sample_counts)))} samples in one loop: {SEVERAL_DATASETS_REMEDY}"
        )
    if samples is None and sample_counts:
        samples = sample_counts.pop()
    if samples is None or (global_batch is None) == (batching is None):
        raise ValueError("give samples=... and either global_batch=... or batching=..., or make a job.loader with them")
    if other_sizes := batch_sizes - {global_batch if batching is None else batching.batch}:
        raise ValueError(
            f"a loader's batch_size is {other_sizes.pop()}, but job.epochs() sets another one: give it once"
        )
    return samples, global_batch
