"""`prepare-data.py` brings CIFAR-10 to the volume: whole, checked, once, and within a time."""

from __future__ import annotations

import hashlib
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from dyntrain.training.examples.cifar10_data import TRAINING, VALIDATION, generate, record_iterator
from dyntrain.training.examples.cifar10_flags import parse
from dyntrain.training.examples.prepare_cifar10 import BATCHES_OF_RECORD_FILE, main
from dyntrain.training.examples.train_cifar10 import learning_rate_and_schedule


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """As the authors pack it, with few images."""
    generate(tmp_path / "made", 20, 10)
    path = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(path, "w:gz") as packed:
        for name, parts in BATCHES_OF_RECORD_FILE.items():
            binary = "test_batch.bin" if name == VALIDATION else "data_batch_1.bin"
            for part in parts:
                packed.add(tmp_path / "made" / binary, part)
    return path


def _prepare(target: Path, url: str, sha256: str, *more: str) -> int:
    return main(["--directory", str(target), "--url", url, "--sha256", sha256, *more])


def test_cifar_is_made_once_of_the_authors_archive(archive: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    target = tmp_path / "volume" / "data"
    assert _prepare(target, archive.as_uri(), digest) == 0
    assert {path.name for path in target.iterdir()} == {TRAINING, VALIDATION}, "nothing is left over"
    labels = [
        int(v) for b in record_iterator(target / TRAINING, 10, 0, 1, training=False) for v in b.label[0].asnumpy()
    ]
    assert labels == list(range(10)) * 10, "five files of twenty images, in their order"
    archive.unlink()
    assert _prepare(target, archive.as_uri(), digest) == 0, "the next node finds it"


@pytest.fixture
def dripping() -> Iterator[str]:
    """A server that is never silent for long, and never done."""
    over = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            while not over.wait(0.05):
                self.wfile.write(b"x")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/x.tar.gz"
    over.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_cifar_what_is_wrong_is_said_in_a_sentence_and_leaves_nothing(
    archive: Path, tmp_path: Path, dripping: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut.tar.gz"
    cut.write_bytes(archive.read_bytes()[:-2000])
    digest = hashlib.sha256(cut.read_bytes()).hexdigest()
    for url, sha256, message in (
        (archive.as_uri(), digest, "is damaged, or is another file than expected"),
        (cut.as_uri(), digest, "Compressed file ended"),
        ("http://127.0.0.1:9/x.tar.gz", digest, "give --url file:///PATH"),
        ("ftp://example.org/x", digest, "must begin with"),
        (dripping, digest, "--seconds"),
    ):
        assert _prepare(tmp_path / "data", url, sha256, "--seconds", "0.3") == 1
        err = capsys.readouterr().err
        assert message in err
        assert len(err.splitlines()) == 1
    assert not [path for path in tmp_path.glob("data/*") if path.name in BATCHES_OF_RECORD_FILE]


def test_cifar_the_documents_flags_are_understood_with_and_without_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["--network", "resnet", "--num-layers", "50", "--kv-store", "dist_device_sync"]
    assert parse(["--gpus", "0,1", *typed]).gpus == [0, 1]
    none = parse(["--gpus", *typed])  # what `seq` prints where there are none
    assert (none.gpus, none.num_layers, none.kv_store, none.num_epochs) == ([], 50, "dist_device_sync", 300)
    for wrong, message in ((["--num-layers", "51"], "6n + 2"), (["--load-epoch", "3"], "--model-prefix")):
        with pytest.raises(SystemExit):
            parse(wrong)
        assert message in capsys.readouterr().err


def test_cifar_the_rate_goes_on_where_the_saved_epoch_left_it() -> None:
    flags = ["--lr", "0.5", "--lr-step-epochs", "2,4", "--model-prefix", "x"]
    assert learning_rate_and_schedule(parse(flags), 10)[0] == 0.5
    lr, schedule = learning_rate_and_schedule(parse([*flags, "--load-epoch", "3"]), 10)
    assert lr == pytest.approx(0.05)
    assert (schedule.step, schedule.base_lr) == ([10], lr)
    assert learning_rate_and_schedule(parse([*flags, "--load-epoch", "4"]), 10)[1] is None
