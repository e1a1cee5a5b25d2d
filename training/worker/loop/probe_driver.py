"""Probe a loop's first batch before the first step: compare the batch's gradients with the sum of its parts' gradients.

MXNet's record of a loss does not show everything that a script counts in its batch, such as class weights or the number
of picked places. So a probe compares gradients: each worker at the loop's first step forks child processes. In three
children, the script runs on some samples of the first batch (the *excerpt*), and on each of two parts of the excerpt.
If the two parts' gradients do not add up to the excerpt's gradients, the script would train differently on several
workers.

Layers like BatchNorm are frozen in the children, because the results of these layers depend on the batch by design. A
random draw with a row for each sample gives a sample the same row in each child. If the children draw different random
numbers for the same sample nevertheless, the probe gives no result. The probed samples are loaded in the parent
process. If the script uses `epoch.indices()`, it loads the probed samples in the child.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dyntrain.training.numpy_aliases  # noqa: F401  # before mxnet
import numpy as np
from dyntrain.training.sampling.sharding import Indices
from dyntrain.training.worker.data.batches import Dataset
from dyntrain.training.worker.data.loader import Loader
from dyntrain.training.worker.data.randomness import seed_generators
from dyntrain.training.worker.loop.probe_child import ProbeChild
from dyntrain.training.worker.probe.child import ParentPipe, fork
from dyntrain.training.worker.probe.draws import draw_for_all_samples, find_generators
from dyntrain.training.worker.probe.freeze_layers import Moments, Statistics, freeze_layers
from dyntrain.training.worker.probe.ipc_guard import guard_ipc
from dyntrain.training.worker.probe.on_cpu import copy_to_cpu, move_to_cpu
from dyntrain.training.worker.probe.sketches import Difference, Sketch, largest_difference
from dyntrain.training.worker.state.training_state import gradient_key
from mxnet.contrib.amp import amp

if TYPE_CHECKING:
    from dyntrain.training.worker.loop.training_loop import TrainingLoop

MOST_SAMPLES, FEWEST_SAMPLES = 12, 4  # samples of the excerpt, at most and at least
FIRST_SHARE = 5 / 12  # share of the first part, so that neither part is a multiple of the other
PROBE_SECONDS = 60.0  # time limit of the whole probe; a script that takes longer begins without it
MORE_SAMPLES, SECOND_SHARE, SOON_SECONDS = 256, 0.5, 10.0  # second excerpt: most samples, first share, time limit
TOLERANCE, FLOAT16_TOLERANCE = 1e-3, 5e-2  # rounding of a sum in another order, with float32 and with float16
PROBED_MESSAGE = (
    "the first batch is probed: the gradients of %(first)d and %(rest)d samples add up to those of all %(whole)d"
)
WENT_ON_REASON = "the script went on without asking for the next batch"
TALKED_REASON = "the script talks to another process before its step"
REFUSED_BY_ANOTHER_ERROR = (
    "another worker refuses the script because of a batch: that worker's log has the reason and the remedy"
)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChildReport:
    """Report of a probe's child process: sketches of its gradients by key, and data to compare with other children."""

    gradients: dict[str, Sketch]
    totals: list[float]  # results of `epoch.sum`
    norms: list[Moments]  # statistics of the normalization layers
    drawn: str  # digest of the random draws
    of_batch: list[str]  # functions that drew numbers for the batch as a whole


def probe_first_batch(loop: TrainingLoop, dataset: Dataset | Loader | None) -> Generator[Indices, None, None]:
    """Probe the first batch: compare its gradients with the sum of its parts' gradients. This generator yields only in
    a child process, where it yields the child's part of the batch.

    In a child process, `loop.probe_child` is set. After the probe, `loop.refusal` says why if the probe refuses the
    script. If `dataset` is None, the script itself loads its samples, also in the child process.
    """
    batch = loop.feeder.first_batch[:MOST_SAMPLES]
    started_at = time.monotonic()
    try:
        if len(batch) < FEWEST_SAMPLES:
            raise ProbeSkipped(f"it has {len(batch)} samples")
        whole_report = yield from Probe(loop, dataset, batch, FIRST_SHARE).run()
    except ProbeSkipped as skip_reason:
        loop.findings.find("DT202", why=skip_reason)
        return
    if loop.refusal is not None:
        return
    log.info(PROBED_MESSAGE, sizes_of(batch, FIRST_SHARE))
    if whole_report.of_batch:
        loop.findings.find("DT203", by=", ".join(whole_report.of_batch))
    larger_batch = loop.feeder.first_batch[: max(len(batch), min(MORE_SAMPLES, loop.feeder.first_part_size))]
    if (time.monotonic() - started_at) * len(larger_batch) / len(batch) < SOON_SECONDS:
        # Few samples rarely share a class, and two parts may agree by chance
        with suppress(ProbeSkipped):
            yield from Probe(loop, dataset, larger_batch, SECOND_SHARE).run()


def sizes_of(batch: Indices, first_share: float) -> dict[str, int]:
    """Return the sizes of the probed excerpt and of its two parts."""
    size = len(batch)
    return {"whole": size, "first": int(size * first_share), "rest": size - int(size * first_share)}


class ProbeSkipped(Exception):
    """The probe cannot show whether the script is right; the error's message says why."""


class Probe:
    """A probe of the samples `batch`, of which the fraction `first_share` forms the first of two parts."""

    def __init__(
        self, loop: TrainingLoop, dataset: Dataset | Loader | None, batch: Indices, first_share: float
    ) -> None:
        self._loop, self._dataset, self._batch = loop, dataset, batch
        self._sizes = sizes_of(batch, first_share)
        self._until, self._own = time.monotonic() + PROBE_SECONDS, find_generators()
        self._on_cpu = copy_to_cpu()

    def run(self) -> Generator[Indices, None, ChildReport]:
        """Run the script on the probed samples and on their two parts; returns the report on all probed samples. Raises
        ProbeSkipped.
        """
        rows, first_size = np.arange(len(self._batch)), self._sizes["first"]
        whole_report = yield from self._run_child(rows, None)
        part_reports = []
        for part_rows in (rows[:first_size], rows[first_size:]):
            part_reports.append((part_rows, (yield from self._run_child(part_rows, whole_report))))
        if len({whole_report.drawn, *(report.drawn for _, report in part_reports)}) > 1:
            raise ProbeSkipped("the script draws other numbers for other samples")
        if mismatch := self._first_mismatch(whole_report, part_reports):
            rerun_report = yield from self._run_child(rows, None)
            if self._first_mismatch(whole_report, [(rows, rerun_report)]):
                raise ProbeSkipped("the script gives two results for the same samples")
            self._loop.findings.find("DT201", name=mismatch.name, share=mismatch.share, **self._sizes)
        return whole_report

    def _run_child(self, rows: Indices, whole_report: ChildReport | None) -> Generator[Indices, None, ChildReport]:
        """Run the script in a child process on `rows` of the probed samples; returns the child's report. Raises
        ProbeSkipped.

        `whole_report`: the report on all probed samples if `rows` are only a part, otherwise None.
        """
        try:
            dataset = self._dataset
            samples = None if dataset is None else self._loop.feeder.load_part(dataset, self._batch, rows)
        except Exception as error:  # raised again when the script gets its batch
            raise ProbeSkipped(f"its samples cannot be loaded: {error}") from error
        result = fork(self._until - time.monotonic())
        if isinstance(result, ParentPipe):
            result.end_at_errors(sys._getframe())
            self._loop.membership.forked(result.ending_call(WENT_ON_REASON))
            guard_ipc(result.ending_call(TALKED_REASON))
            move_to_cpu(self._on_cpu)
            statistics = Statistics(None if whole_report is None else whole_report.norms)
            freeze_layers(statistics)
            draw_for_all_samples(rows, len(self._batch))
            seed_generators(self._loop.seed, self._loop.position.step, 0)
            probe_child = ProbeChild(
                result, samples, None if whole_report is None else whole_report.totals, statistics, self._own
            )
            batch = self._loop.feeder.set_probe_batch(probe_child, self._batch, rows)
            try:
                yield batch.part
            except GeneratorExit:
                result.send_and_end({"failed": WENT_ON_REASON})
            probe_child.end(self._loop, batch)
        if "failed" in result:
            raise ProbeSkipped(result["failed"])
        gradients = {key: Sketch(norm, sums) for key, (norm, sums) in result["gradients"].items()}
        if not gradients:
            raise ProbeSkipped("the script does not step in it")
        return ChildReport(gradients, result["totals"], result["norms"], result["drawn"], result["of_batch"])

    def _first_mismatch(
        self, whole_report: ChildReport, part_reports: Sequence[tuple[Indices, ChildReport]]
    ) -> Difference | None:
        """Return the difference for the first trainer whose parts' gradients do not add up, or None if all trainers'
        gradients do. Raises ProbeSkipped.
        """
        for trainer_number, trainer in enumerate(self._loop.trainers):
            names = {gradient_key(trainer_number, index): param.name for index, param in enumerate(trainer._params)}
            for report in (whole_report, *(report for _, report in part_reports)):
                names = {key: name for key, name in names.items() if key in report.gradients}
            weighted_gradients = [
                (len(rows) / len(self._batch) if trainer.loss_kind == "mean" else 1.0, report.gradients)
                for rows, report in part_reports
            ]
            try:
                mismatch = largest_difference(
                    whole_report.gradients,
                    weighted_gradients,
                    names,
                    FLOAT16_TOLERANCE if _uses_float16(trainer) else TOLERANCE,
                )
            except ValueError as error:
                raise ProbeSkipped(str(error)) from error
            if mismatch is not None:
                return mismatch
        return None


def _uses_float16(trainer: Any) -> bool:
    """Whether float16 is used, in the parameters or by AMP."""
    return amp._amp_initialized or any(np.dtype(param.dtype) == np.float16 for param in trainer._params)
