"""What a script saves of its model is there whole or not at all, whenever its writer dies."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import dyntrain.training.elastic_mxnet as mx
import numpy as np
import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.training.module import ModuleStore
from dyntrain.training.protocol.messages import Position
from dyntrain.training.worker.arrays.kvstore import ElasticKVStore
from dyntrain.training.worker.membership.membership import Membership
from dyntrain.training.worker.state.saved_model import WRITER

NET = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="one")
KILLED_WHILE_IT_WRITES = """
import resource, signal, sys
import dyntrain.training.elastic_mxnet as mx
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
mx.callback.do_checkpoint(sys.argv[1])(0, None, {"one_weight": mx.nd.ones((1 << 20,))}, {})
"""


def _weights(value: float) -> dict[str, object]:
    return {"one_weight": mx.nd.full((2, 3), value), "one_bias": mx.nd.zeros((2,))}


def test_face_a_killed_writer_leaves_the_file_of_before(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    mx.callback.do_checkpoint(prefix)(0, NET, _weights(1.0), {})
    killed = subprocess.run([sys.executable, "-c", KILLED_WHILE_IT_WRITES, prefix], timeout=patient(60), check=False)
    assert killed.returncode == -signal.SIGXFSZ, "in the middle of the file"
    symbol, weights, _ = mx.model.load_checkpoint(prefix, 1)
    assert symbol.list_arguments() == NET.list_arguments()
    assert (weights["one_weight"].asnumpy() == 1.0).all()
    assert [
        path.name[0] for path in tmp_path.iterdir() if path.name not in ("model-symbol.json", "model-0001.params")
    ] == ["."], "what it left has another name, which no pattern of people's finds"


def test_face_a_checkpoint_that_cannot_be_written_leaves_the_one_of_before(tmp_path: Path) -> None:
    with pytest.raises(mx.base.MXNetError):
        mx.model.save_checkpoint(str(tmp_path / "nowhere" / "model"), 1, None, _weights(1.0), {})
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(autouse=True)
def _writer_again() -> Iterator[None]:
    yield
    WRITER.chosen = True


@pytest.fixture(params=[True, False])
def chosen(request: pytest.FixtureRequest) -> bool:
    """Whether this process is the worker that saves."""
    WRITER.chosen = request.param
    return bool(request.param)


def test_face_all_ways_to_save_a_checkpoint_are_one_workers(tmp_path: Path, chosen: bool) -> None:
    module = mx.mod.Module(NET, label_names=None)
    module.bind([("data", (1, 3))])
    module.init_params(mx.init.One())
    module.init_optimizer()
    module.save_checkpoint(str(tmp_path / "own"), 3, save_optimizer_states=True)
    mx.callback.module_checkpoint(module, str(tmp_path / "callback"), period=2)(1)
    mx.callback.do_checkpoint(str(tmp_path / "plain"), period=2)(0, NET, *module.get_params())
    mx.model.save_checkpoint(str(tmp_path / "model"), 4, NET, *module.get_params())
    there = {"own-symbol.json", "own-0003.params", "own-0003.states"}
    there |= {"callback-symbol.json", "callback-0002.params", "model-symbol.json", "model-0004.params"}
    assert {path.name for path in tmp_path.iterdir()} == (there if chosen else set())
    if chosen:
        _, weights, _ = mx.model.load_checkpoint(str(tmp_path / "own"), 3)
        assert np.array_equal(weights["one_weight"].asnumpy(), np.ones((2, 3)))


class Losing(Membership):
    """The second of two workers, of which the other is lost while the first epoch's statistics are averaged."""

    def __init__(self, agreed: int) -> None:
        super().__init__(ElasticKVStore(None))
        self.kvstore.rank, self._agreed, self._lost, self._losses = 1, agreed, False, 0

    @property
    def broken(self) -> bool:
        return self._lost

    @property
    def generation(self) -> int:
        return 1 if self._lost or not self._losses else 2

    def average_statistics(self, position: Position) -> None:
        self._lost, self._losses = self._losses == 0, self._losses + 1

    def rejoin(self, position: Position) -> Position:
        self._lost = False
        return Position(epoch=self._agreed, offset=0, step=position.step)


class Data(mx.mod.BaseDataIterator):
    def get_data_iterator(self, kv: object) -> tuple[object, None]:
        return mx.io.NDArrayIter(np.ones((4, 3), np.float32), np.zeros(4, np.float32), 4, label_name="out_label"), None


@pytest.mark.parametrize(("agreed", "trained"), [(1, [0, 1]), (0, [0, 0, 1])])
def test_face_an_epoch_is_told_once_when_a_worker_is_lost_at_its_end(agreed: int, trained: list[int]) -> None:
    """Whether the others had all of it or it is begun again. Nobody knows then who else has trained it: all save."""
    ended: list[tuple[int, bool]] = []
    batches: list[int] = []
    data = Data()
    train, _ = data.get_data_iterator(None)
    module = mx.mod.Module(mx.sym.SoftmaxOutput(NET, name="out"), label_names=["out_label"], data_iterator=data)
    module.fit(
        train,
        kvstore=ModuleStore(Losing(agreed), "dist_sync"),
        num_epoch=2,
        batch_end_callback=lambda batch: batches.append(batch.epoch),
        epoch_end_callback=lambda epoch, *_: ended.append((epoch, WRITER.chosen)),
    )
    assert batches == trained
    assert ended == [(0, agreed == 1), (1, False)]
