"""What random transforms of images draw belongs to the sample, and costs no seeding of all of MXNet's generators."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import reduce
from typing import Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
import pytest
from dyntrain.training.worker.data.image_draws import RANDOM_BLOCKS, RANDOM_OPERATORS
from dyntrain.training.worker.data.loader import Load, Loader
from dyntrain.training.worker.data.loader_processes import LoaderProcesses

import mxnet as mx  # isort: skip
from mxnet.gluon.data.vision import transforms

# Of even width and height: MXNet 1.9.1 leaves the middle of others as it was in memory when it flips them
IMAGES = np.random.default_rng(3).integers(0, 255, (12, 6, 4, 3), np.uint8)
BATCHES = ([3, 1, 4], [4, 3, 7, 9], [1], [10, 11, 0])
Transform = Callable[[Any], Any]
FLIP = transforms.RandomFlipLeftRight()


def all_of_them() -> list[Transform]:
    return [
        transforms.RandomFlipLeftRight(),
        transforms.RandomFlipTopBottom(),
        transforms.RandomBrightness(0.4),
        transforms.RandomContrast(0.4),
        transforms.RandomSaturation(0.4),
        transforms.RandomHue(0.1),
        transforms.RandomColorJitter(0.4, 0.4, 0.4, 0.1),
        transforms.RandomLighting(0.1),
    ]


def one_by_one() -> Transform:
    transforms = all_of_them()
    return lambda image: reduce(lambda image, each: each(image), transforms, image.astype("float32") / 255)


def composed() -> Transform:
    """Gluon makes one operator of these."""
    return transforms.Compose([transforms.Cast("float32"), *all_of_them(), transforms.ToTensor()])  # type: ignore[no-any-return]


def in_parallel_now_and_then(image: Any) -> Any:
    """Where one set of generators is missing, MXNet divides by zero."""
    image = FLIP(image.astype("float32"))
    return image + mx.nd.random.normal(shape=image.shape) if image[0, 0, 0].asscalar() > 128 else image


def shuffled(image: Any) -> Any:
    """Draws from the generator that the operators of images draw from."""
    return mx.nd.random.shuffle(FLIP(image.astype("float32")))


class Images:
    """A sample says, too, how often this process has seeded MXNet's generators on the thread that loads."""

    def __init__(self, transform: Transform) -> None:
        self._transform = transform
        self._seeded: list[Any] | None = None

    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, index: int) -> Any:
        if self._seeded is None:
            seed, self._seeded = mx.random.seed, []

            def counts(*args: Any) -> None:
                if threading.current_thread() is threading.main_thread():
                    self._seeded.append(args)
                seed(*args)

            mx.random.seed = counts
        image = mx.nd.array(IMAGES[index], dtype="uint8")
        if mx.util.is_np_array():
            image = image.as_np_ndarray()
        return self._transform(image), np.int64(len(self._seeded))


def loaded(transform: Transform, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[Any], int]:
    """(what this process makes of the batches, what a loading one does, how often that one has seeded)."""
    monkeypatch.setattr(mx.random, "seed", mx.random.seed)  # to be put back
    there = Loader(Images(transform), processes=LoaderProcesses(Images(transform), None, 1))
    try:
        here, pairs, seeded = Loader(Images(transform)), list[list[Any]](), 0
        for indices in BATCHES:
            load = Load(2, 5, np.array(indices))
            one, (other, counted) = here.take(iter([load]))[0], there.take(iter([load]))
            pairs.append([one.asnumpy(), other.asnumpy()])
            seeded = int(counted.asnumpy()[-1])
        return [one for one, _ in pairs], [other for _, other in pairs], seeded
    finally:
        there.close()


@pytest.mark.parametrize("numpys", [False, True])
@pytest.mark.parametrize("make", [one_by_one, composed])
def test_transforms_of_images_draw_what_they_draw_where_all_generators_are_seeded(
    make: Callable[[], Transform], numpys: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mx.util.np_shape(numpys), mx.util.np_array(numpys):
        expected, actual, seeded = loaded(make(), monkeypatch)
    for one, other in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(one, other)
    indices = {index for batch in BATCHES for index in batch}
    assert len({image.tobytes() for batch in actual for image in batch}) == len(indices)
    assert seeded == 0, "1.2 ms for each of them: a CIFAR-10 script would load at a fifth of its speed"


@pytest.mark.parametrize("transform", [in_parallel_now_and_then, shuffled])
def test_what_else_draws_belongs_to_the_sample_beside_them(
    transform: Transform, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, actual, seeded = loaded(transform, monkeypatch)
    for one, other in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(one, other)
    assert seeded, "or this transform draws nothing that the test is about"


def test_every_operator_of_images_that_draws_is_known() -> None:
    """Another version of MXNet may have more; they would be right, and slow."""
    assert {name for name in dir(mx.nd.image) if name.startswith("random_")} == set(RANDOM_OPERATORS)
    named = {name for name in dir(transforms) if name.startswith("Random") and name.removeprefix("Random")}
    drawn = {name for name in named if issubclass(getattr(transforms, name), transforms.HybridBlock)}
    assert drawn - {"RandomApply", "HybridRandomApply"} == {each.__name__ for each in RANDOM_BLOCKS}
