"""A worker killed in the middle of what takes several exchanges or batches, on the real ps-lite: two networks that are
trained against each other, words that are summed before the gradients, and gradients that add up over batches and over
the end of an epoch.
"""

from __future__ import annotations

import sys
from pathlib import Path

import idioms
import numpy as np
import pytest
from conducted import Plain
from job_bed import JobBed, instance

SCRIPT = Path(__file__).with_name("mortal_idiom.py")


@pytest.mark.parametrize(
    ("name", "step", "exchange"),
    [
        pytest.param("dcgan", 5, 1, id="between the updates of two networks"),
        pytest.param("translation", 5, 0, id="at the sum of the words of a batch"),
        pytest.param("accumulation", 6, 0, id="at the sum of four batches, of which one is of the epoch before"),
        pytest.param("truncated", 6, 0, id="in a batch whose rows go on with hidden states"),
        pytest.param("sentiment_analysis", 6, 0, id="in a batch of a sampler that remembers its passes"),
    ],
)
def test_t9_a_kill_within_an_epoch_leaves_the_weights_of_one_process(
    tmp_path: Path, name: str, step: int, exchange: int
) -> None:
    (tmp_path / "doom").touch()
    bed = JobBed(tmp_path, [sys.executable, str(SCRIPT), name, str(step), str(exchange), str(tmp_path)], workers=3)
    try:
        for letter in "ABC":
            bed.add_node(letter, base=letter != "C")
        bed.want("ABC")
        bed.finish()
    finally:
        bed.close()
    assert not (tmp_path / "doom").exists(), "nobody was killed"
    assert len(bed.events("released")) == 1
    assert bed.events("restart") == []
    assert sorted(len(bed.supervisors[instance(letter)].pids) for letter in "ABC") == [1, 1, 2]
    found = bed.audit()
    assert found.exact, found
    expected = getattr(idioms, name)(Plain())
    saved = list(tmp_path.glob("weights-*.npz"))
    assert len(saved) >= 2, "both survivors came to the end"
    for file in saved:
        with np.load(file) as weights:
            for mine, theirs in zip(weights.values(), expected, strict=True):
                np.testing.assert_allclose(mine, theirs, atol=2e-5, rtol=1e-4)
