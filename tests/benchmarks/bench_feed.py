"""The speed of a job's loader compared with Gluon's, in samples a second through a small net that trains.

Both decode, crop, flip and normalise JPEGs with two processes. Passes of `job.loader` and of a plain
`gluon.data.DataLoader` over the same files take turns, and the figure is the median over pairs of neighbours; each pass
begins with nothing prefetched. The last batches of each pass are not counted: meanwhile the job's loader already loads
the next pass, which Gluon's does not, and which is of no use when the passes take turns.

In every second pair the membership changes twice in the middle of the pass (this worker is one of two for a step, then
alone again), so that prefetched batches are dropped. Each change takes FORMING_SECONDS, during which the new share is
already loaded; a real change takes longer, see `BENCH=reform`. `across_a_change` excludes those seconds, so it is the
cost of changes due to loading; `forming_counted` includes them. `dip_seconds` is how much longer than usual the first
batch after a change takes, without them; `pass_seconds` is the length of a pass.

The transforms are those of `mx.image`, which draw from Python's generator. `gluons_flip` uses Gluon's own instead,
whose `RandomFlipLeftRight` draws from MXNet's generator, so that a seeded thread runs it for each sample.
"""

from __future__ import annotations

import io
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np

import mxnet as mx  # isort: skip
from dyntrain.training.job import ElasticJob
from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.arrays.kvstore import ElasticKVStore
from dyntrain.training.worker.membership.membership import Membership
from figures import Figure, at_least, progress, unbounded, write
from mxnet import autograd, gluon
from mxnet.gluon.data.vision import transforms
from PIL import Image

FILES, IMAGES, SIDE, CROP, BATCH, PROCESSES = 384, 1920, 256, 224, 32, 2
PAIRS, FLIP_PAIRS = 10, 4
AHEAD = 2 * PROCESSES  # batches, of both loaders
PASS = IMAGES // BATCH  # steps
CHANGE = PASS // 2  # step of a pass
FORMING_SECONDS = 0.3
BOUND = 0.97


def jpegs() -> list[bytes]:
    """Smooth images with some noise, of about 20 KB each, like photographs of this size."""
    rng, images = np.random.default_rng(0), []
    for _ in range(FILES):
        smooth = np.asarray(Image.fromarray(rng.integers(0, 255, (16, 16, 3), np.uint8)).resize((SIDE, SIDE)))
        noisy = np.clip(smooth.astype(np.int16) + rng.integers(-12, 12, smooth.shape), 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(noisy).save(file, "JPEG", quality=90)
        images.append(file.getvalue())
    return images


class Images:
    def __init__(self, files: Sequence[bytes], transform: Callable[[Any], Any]) -> None:
        self._files, self._transform = files, transform

    def __len__(self) -> int:
        return IMAGES

    def __getitem__(self, index: int) -> Any:
        return self._transform(mx.image.imdecode(self._files[index % FILES])), index % 10


MEAN, DEVIATION = mx.nd.array([124.0, 117.0, 104.0]), mx.nd.array([58.0, 57.0, 57.0])


def pythons(image: Any) -> Any:
    crop = mx.image.random_size_crop(image, (CROP, CROP), (0.08, 1.0), (0.75, 1.33))[0]
    image = mx.image.HorizontalFlipAug(0.5)(crop)
    return mx.image.color_normalize(image.astype("float32"), MEAN, DEVIATION).transpose((2, 0, 1))


def gluons() -> Callable[[Any], Any]:
    return transforms.Compose(  # type: ignore[no-any-return]
        [
            transforms.RandomResizedCrop(CROP),
            transforms.RandomFlipLeftRight(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )


class Net:
    """A network so small that loading is the bottleneck."""

    def __init__(self) -> None:
        self.net = gluon.nn.HybridSequential()
        self.net.add(gluon.nn.MaxPool2D(16, 16), gluon.nn.Dense(10))
        self.net.initialize()
        self.net(mx.nd.zeros((1, 3, CROP, CROP)))
        self._loss = gluon.loss.SoftmaxCrossEntropyLoss()

    def train(self, batch: Any, trainer: Any, size: int) -> None:
        with autograd.record():
            loss = self._loss(self.net(batch[0]), batch[1])
        loss.backward()
        trainer.step(size)
        loss.wait_to_read()


class Changing(Membership):
    """One worker that becomes one of two for a step in the middle of every second pass.

    Boundaries are before and after that step, and at the end of each pass.
    """

    def __init__(self) -> None:
        super().__init__(ElasticKVStore(None))
        self.segment_steps = PASS + CHANGE

    def boundary(self, position: Position) -> Position:
        step = position.offset // BATCH
        workers = 2 if position.epoch % 2 and step == CHANGE else 1
        if workers != self.kvstore.num_workers:
            self.expects(position, 0, workers)
            time.sleep(FORMING_SECONDS)
            self.kvstore.rank, self.kvstore.num_workers = 0, workers
            self.first_step, self.segment_steps = position.step, 2 * PASS - 1 if workers == 1 else 1
        return super().boundary(position)


def elastic(dataset: Images, passes: int) -> Iterator[list[tuple[float, int]]]:
    """For each pass, (seconds, samples) of its batches, including the seconds of formations."""
    model, job = Net(), ElasticJob(Changing())
    trainer = job.trainer(model.net.collect_params(), "sgd", {"learning_rate": 0.01})
    loader = job.loader(dataset, num_workers=PROCESSES)
    for epoch in job.epochs(passes, samples=IMAGES, global_batch=BATCH):
        batches, began = [], time.perf_counter()
        for batch in epoch.batches(loader):
            model.train(batch, trainer, BATCH)
            now = time.perf_counter()
            batches.append((now - began, len(batch[1])))
            began = now
        loader.drop_prefetched()  # else it would load its next pass during the other loader's turn
        yield batches


def plain(dataset: Images) -> Iterator[list[tuple[float, int]]]:
    model = Net()
    trainer = gluon.Trainer(model.net.collect_params(), "sgd", {"learning_rate": 0.01})
    loader = gluon.data.DataLoader(dataset, BATCH, shuffle=True, num_workers=PROCESSES)
    while True:
        batches, began = [], time.perf_counter()
        for batch in loader:
            model.train(batch, trainer, BATCH)
            now = time.perf_counter()
            batches.append((now - began, len(batch[1])))
            began = now
        yield batches


def rate(batches: list[tuple[float, int]], formed: int = 0) -> float:
    """Samples a second, excluding the seconds of `formed` formations."""
    counted = batches[:-AHEAD]
    seconds = sum(seconds for seconds, _ in counted) - formed * FORMING_SECONDS
    return sum(samples for _, samples in counted) / seconds


def pairs(dataset: Images, count: int) -> list[tuple[list[tuple[float, int]], list[tuple[float, int]]]]:
    """Pairs of passes, in turns; the first two pairs are a warm-up and are left out."""
    static, turns = plain(dataset), []
    for mine in elastic(dataset, count + 2):
        theirs = next(static)
        progress(f"job.loader {rate(mine):.0f} samples/s, DataLoader {rate(theirs):.0f}")
        turns.append((mine, theirs))
    return turns[2:]


def main(out: Path) -> list[Figure]:
    files = jpegs()
    turns = pairs(Images(files, pythons), 2 * PAIRS)
    usual = statistics.median(seconds for mine, _ in turns for seconds, _ in mine)
    changed = turns[1::2]
    dips = [max(mine[CHANGE][0], mine[CHANGE + 1][0]) - FORMING_SECONDS - usual for mine, _ in changed]
    flips = [
        rate(mine, formed=2 * (at % 2)) / rate(theirs)
        for at, (mine, theirs) in enumerate(pairs(Images(files, gluons()), 2 * FLIP_PAIRS))
    ]
    figures = {
        "steady": statistics.median(rate(mine) / rate(theirs) for mine, theirs in turns[::2]),
        "across_a_change": statistics.median(rate(mine, formed=2) / rate(theirs) for mine, theirs in changed),
        "forming_counted": statistics.median(rate(mine) / rate(theirs) for mine, theirs in changed),
        "dip_seconds": statistics.median(dips),
        "pass_seconds": statistics.median(sum(seconds for seconds, _ in mine) for mine, _ in turns),
        "gluons_flip": statistics.median(flips),
        "loader_samples_per_second": statistics.median(rate(mine) for mine, _ in turns[::2]),
        "dataloader_samples_per_second": statistics.median(rate(theirs) for _, theirs in turns),
    }
    write(out, "feed", figures)
    bounds = ("steady", "across_a_change")
    return [
        at_least(name, value, BOUND) if name in bounds else unbounded(name, value) for name, value in figures.items()
    ]
