"""A session as people have it with SageMaker's pipe mode and Horovod: the same channels, the same loop, run here.

What would break for a user: a channel that means something else here than there, so the records come to other ranks,
or in an order that is the same each epoch; validation that stalls the ranks.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from feed_bed import Feed, noise, put

# By SageMaker's Python SDK 1: a shard a rank, evaluation by the first one
SESSION = """
import sagemaker
from sagemaker.session import s3_input
from sagemaker.tensorflow import TensorFlow

estimator = TensorFlow(entry_point='train.py', role='SageMakerRole', train_instance_type='ml.p3.8xlarge',
                       train_instance_count=1, framework_version='2.1.0', py_version='py3', input_mode='Pipe')
each_epoch_anew = sagemaker.session.ShuffleConfig(234)
channels = {}
for rank in range(4):
    channels[f'train_{rank}'] = s3_input(f's3://data/sets/train/{rank}/', shuffle_config=each_epoch_anew)
    channels[f'validation_{rank}'] = s3_input('s3://data/sets/validation/')
channels['eval'] = s3_input('s3://data/sets/eval.manifest', s3_data_type='ManifestFile')
channels['words'] = s3_input('s3://data/sets/words/', input_mode='File')
estimator.fit(channels)
"""
# Of each rank, as Horovod starts it
TRAIN = """
import json, os, sys
import horovod.tensorflow as hvd
from sagemaker_tensorflow import PipeModeDataset

hvd.init()
train = PipeModeDataset(channel='train_{}'.format(hvd.rank()), record_format='TFRecord')
validation = PipeModeDataset(channel='validation_{}'.format(hvd.rank()), record_format='TFRecord')
seen = {'words': sorted(os.listdir(os.environ['SM_CHANNEL_WORDS'])), 'train': [], 'validation': []}
for epoch in range(3):
    seen['train'].append(list(train))
    seen['validation'].append(list(validation))
if hvd.rank() == 0:
    seen['eval'] = list(PipeModeDataset(channel='eval', record_format='TFRecord'))
print(json.dumps(seen), file=open(os.environ['OUT'] + '/rank-{}'.format(hvd.rank()), 'w'))
"""
STAND_INS = {
    "horovod/__init__.py": "",
    "horovod/tensorflow.py": """
import os

def init(): pass

def rank(): return int(os.environ['HOROVOD_RANK'])
""",
    "sagemaker_tensorflow.py": f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(Path(__file__).parent)!r})
from feed_reader import named, pipe_mode_dataset

class PipeModeDataset:
    def __init__(self, channel, record_format):
        self.epoch, self.of = 0, (channel, record_format)

    def __iter__(self):
        root = Path(os.environ['SM_CHANNEL_EVAL']).parent
        self.epoch += 1
        return map(named, pipe_mode_dataset(self.of[0], self.epoch - 1, self.of[1], root))
""",
}


def channel_of(name: str, given: dict[str, Any], mode: str) -> str:
    """What the document of channels says that a call of `s3_input` means here."""
    word = f"{name}={given['s3_data']}"
    if given.get("s3_data_type") == "ManifestFile":
        word += ",manifest"
    if "shuffle_config" in given:
        word += f",shuffle={given['shuffle_config']}"
    return f"{word},mode=file" if (given.get("input_mode") or mode) == "File" else word


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Of the channels that a session's `fit` is given."""
    fitted: list[str] = []

    class TensorFlow:
        def __init__(self, input_mode: str = "File", **_: Any) -> None:
            self.mode = input_mode

        def fit(self, channels: dict[str, dict[str, Any]]) -> None:
            fitted.extend(channel_of(name, given, self.mode) for name, given in channels.items())

    sdk, session, tensorflow = ModuleType("sagemaker"), ModuleType("sagemaker.session"), ModuleType("tensorflow")
    session.s3_input = lambda s3_data, **more: {"s3_data": s3_data, **more}  # type: ignore[attr-defined]
    session.ShuffleConfig = lambda seed: seed  # type: ignore[attr-defined]
    sdk.session, tensorflow.TensorFlow = session, TensorFlow  # type: ignore[attr-defined]
    for name, module in (("sagemaker", sdk), ("sagemaker.session", session), ("sagemaker.tensorflow", tensorflow)):
        monkeypatch.setitem(sys.modules, name, module)
    return fitted


def test_a_session_of_sagemakers_pipe_mode_with_horovod(s3: Any, feed: Feed, words: list[str]) -> None:
    shards = {}
    for rank in range(4):
        parts = {f"{number}.tfrecord": noise(f"{rank}{number}", 4, 50) for number in range(6)}
        shards[rank] = [one for part in put(s3, parts, below=f"sets/train/{rank}/").values() for one in part]
    validation = put(s3, {"v": noise("v", 5, 50)}, below="sets/validation/")["v"]
    evaluated = put(s3, {"x": noise("x", 2, 50), "y": noise("y", 2, 50)}, below="sets/eval/")
    s3.put_object(Bucket="data", Key="sets/eval.manifest", Body=b'[{"prefix": "s3://data/sets/eval/"}, "y", "x"]')
    put(s3, {"a.txt": [b"1"]}, below="sets/words/")
    exec(SESSION, {})  # noqa: S102
    assert words[0] == "train_0=s3://data/sets/train/0/,shuffle=234"
    for name, content in {"train.py": TRAIN, **STAND_INS}.items():
        path = feed.folder / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    ranks = " & ".join(f"HOROVOD_RANK={rank} {sys.executable} $OUT/code/train.py" for rank in range(4))
    options = [option for word in words for option in ("--channel", word)]
    assert feed.run(f"{ranks} & wait", *options, "--workers-per-node", "4") == 0, feed.output()
    for rank in range(4):
        seen = json.loads((feed.folder / f"rank-{rank}").read_text())
        assert [Counter(epoch) for epoch in seen["train"]] == [Counter(shards[rank])] * 3, (
            "each record of its own shard"
        )
        assert len({tuple(epoch) for epoch in seen["train"]}) > 1, "another order of files each epoch"
        assert seen["validation"] == [validation] * 3
        assert seen["words"] == ["a.txt"]
        assert seen.get("eval") == ([*evaluated["y"], *evaluated["x"]] if rank == 0 else None)
