"""The Module face: a script for AWS Dynamic Training runs elastically with its import line changed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import mxnet as mx
import pytest
from dyntrain.controller.local.pace import patient
from job_bed import HOLD, JobBed, instance

TINY_MODULE = str(Path(__file__).parent / "tiny_module.py")


@pytest.fixture
def make_module_bed(tmp_path: Path) -> Iterator[Callable[..., JobBed]]:
    beds: list[JobBed] = []

    def make(*arguments: str, **options: int) -> JobBed:
        command = [sys.executable, TINY_MODULE, "--hold", str(tmp_path / HOLD), *arguments]
        beds.append(JobBed(tmp_path, command, **options))
        return beds[-1]

    yield make
    for bed in beds:
        bed.close()


def _log(bed: JobBed, letter: str) -> str:
    return (bed.folder / f"worker-{instance(letter)}.log").read_text()


def test_face_a_module_script_alone_trains_on_one_worker_with_its_own_schedule() -> None:
    argv = [sys.executable, TINY_MODULE, "--epochs", "8"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=patient(60), check=True)
    epochs = re.findall(r"EPOCH (\d+) rank 0 of 1 rescale 0.250000 lr ([0-9.]+)", done.stderr)
    assert [epoch for epoch, _ in epochs] == [str(n) for n in range(8)]
    assert (epochs[0][1], epochs[7][1]) == ("0.100000", "0.050000"), "the schedule counts as the script meant it"
    assert "already" not in done.stderr.lower(), "MXNet's loop does not warn of what was prepared before it"


def test_face_module_workers_join_and_leave_and_the_data_is_divided_anew(
    make_module_bed: Callable[..., JobBed], tmp_path: Path
) -> None:
    saved = ["--model-prefix", str(tmp_path / "model")]
    bed = make_module_bed("--epochs", "60", "--kv-store", "dist_device_sync", *saved)
    bed.begin()
    bed.add_node("C")
    bed.want("ABC")
    bed.wait_for(bed.saw("joined", "C"), 60, "C joins at an epoch's end")
    bed.want("BC")
    bed.wait_for(bed.saw("left", "A"), 60, "A leaves")
    bed.finish()
    assert {name: len(node.pids) for name, node in bed.supervisors.items()} == {
        instance(letter): 1 for letter in "ABC"
    }, "nobody was restarted"
    assert re.findall(r"DIVIDE (\d) (\d)", _log(bed, "B")) == [("0", "1"), ("1", "2"), ("1", "3"), ("0", "2")]
    assert all(event["position"]["offset"] == 0 for event in bed.events("forming")), "only at epoch ends"
    rescale = {
        m.group(1): m.group(2) for m in re.finditer(r"EPOCH \d+ rank \d of (\d) rescale ([0-9.]+)", _log(bed, "B"))
    }
    assert rescale == {"2": "0.125000", "3": "0.083333"}, "the rate per sample does not jump with the number of workers"
    schedule = [dict(re.findall(r"EPOCH (\d+) rank.* lr ([0-9.]+)", _log(bed, letter))) for letter in "BC"]
    shared = set(schedule[0]) & set(schedule[1])
    assert shared
    assert all(schedule[0][epoch] == schedule[1][epoch] for epoch in shared), (
        "a joiner is where the others are in the schedule"
    )
    assert schedule[0]["5"] == "0.100000"
    assert schedule[0]["7"] == "0.050000", "counted in samples"
    _one_file_an_epoch(bed, tmp_path / "model", 60)


def _one_file_an_epoch(bed: JobBed, prefix: Path, epochs: int) -> None:
    """Although every worker's script saves under the same name."""
    logs = [_log(bed, letter) for letter in "ABC"]
    means: dict[str, set[str]] = {}
    for epoch, mean in re.findall(r"EPOCH (\d+) rank.* mean (\w+)", "".join(logs)):
        means.setdefault(epoch, set()).add(mean)
    assert all(len(of_epoch) == 1 for of_epoch in means.values()), "callbacks see the averaged statistics"
    writers = re.findall(r'Saved checkpoint to ".*model-(\d+)\.params"', "".join(logs))
    assert sorted(writers) == [f"{epoch:04d}" for epoch in range(1, epochs + 1)]
    assert {file.name for file in prefix.parent.glob("*model*")} == {
        "model-symbol.json",
        *(f"model-{epoch}.params" for epoch in writers),
    }, "nothing is left over"
    for epoch, (mean,) in means.items():
        _, _, aux = mx.model.load_checkpoint(str(prefix), int(epoch) + 1)
        assert aux["norm_moving_mean"].asnumpy().tobytes().hex() == mean


def test_face_module_a_killed_worker_costs_the_epoch_and_no_survivor(make_module_bed: Callable[..., JobBed]) -> None:
    bed = make_module_bed("--epochs", "30", "--kv-store", "dist_sync_device")  # as the fork's run.sh spells it
    bed.begin("ABC")
    bed.wait_for_epoch(2)
    bed.kill_worker("C", signal.SIGKILL)
    bed.wait_for(lambda: bed.events("released"), 60, "the survivors are free")
    bed.wait_for(lambda: len(bed.supervisors[instance("C")].pids) > 1, 60, "C is started again")
    bed.finish()
    assert [len(bed.supervisors[instance(letter)].pids) for letter in "AB"] == [1, 1], "no survivor was restarted"
    assert "is begun again: a worker was lost" in _log(bed, "A")
    assert bed.events("finished")


@pytest.mark.jobs
def test_face_a_module_whose_script_divides_its_batch_trains_to_the_weights_of_one_process(
    make_module_bed: Callable[..., JobBed], tmp_path: Path
) -> None:
    bed = make_module_bed("--divided", "--epochs", "60", "--model-prefix", str(tmp_path / "model"), workers=1)
    bed.begin("A")
    for letters, of in (("AB", "B"), ("ABC", "C")):
        bed.add_node(of)
        bed.want(letters)
        bed.wait_for(bed.saw("joined", of), 60, f"{of} joins at an epoch's end")
    bed.want("A")
    for letter in "BC":
        bed.wait_for(bed.saw("left", letter), 60, f"{letter} leaves")
    bed.finish()
    counts = re.findall(r"EPOCH \d+ rank 0 of (\d) rescale ([0-9.]+)", _log(bed, "A"))
    assert [number for i, (number, _) in enumerate(counts) if i == 0 or counts[i - 1][0] != number] == list("1231")
    assert {rescale for _, rescale in counts} == {f"{1 / 12:.6f}"}, "the batch over all workers is always the same"
    alone = [sys.executable, TINY_MODULE, "--divided", "--epochs", "60", "--model-prefix", str(tmp_path / "alone")]
    subprocess.run(alone, capture_output=True, timeout=patient(60), check=True)
    _, weights, _ = mx.model.load_checkpoint(str(tmp_path / "model"), 60)
    _, expected, _ = mx.model.load_checkpoint(str(tmp_path / "alone"), 60)
    for name, value in expected.items():
        assert abs(weights[name].asnumpy() - value.asnumpy()).max() < 1e-4, name
