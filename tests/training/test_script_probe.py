"""The first batch, tried in parts before the first step: what adds up trains, what does not is refused in a sentence,
and what cannot be tried is said in the log.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import patient

SCRIPTS = Path(__file__).with_name("probed_scripts.py")
DIFFER = [
    "classes_counted_in_the_batch",
    "classes_counted_in_a_second_loop",
    "classes_that_few_samples_share",
    "weights_divided_by_their_mean",
    "mean_over_picked_places",
    "outputs_with_the_time_first",
    "target_of_the_whole_batch",
    "divided_within_a_product",
    "mean_of_the_largest",
    "norm_of_the_scripts_own",
    "generator_that_counts",
    "several_batches_an_update",
    "a_count_below_many_norms",
    "classes_counted_beside_noise",
    "samples_beside_those_of_the_batch",
    "loaded_by_the_script_and_counted",
    "on_a_device_and_counted",
]
ADD_UP = [
    "sum_of_losses",
    "mean_of_losses",
    "layers_of_the_batch",
    "layers_of_the_batch_by_numpys_names",
    "recurrent_layers",
    "loaded_by_processes",
    "counted_over_all_workers",
    "divided_by_what_all_workers_counted",
    "loops_within_the_loop",
    "variational_autoencoder",
    "two_networks",
    "imported_net",
    "reduced_over_all_workers",
    "read_from_an_open_file",
    "a_batch_of_a_loading_process_is_held",
    "loaded_by_the_script",
    "on_a_device",
]
DRAWN = {
    "one_draw_for_the_batch": "np.random.uniform",
    "a_coin_for_the_batch": "random",
    "noise_of_each_sample": "np.random.gamma",
}
UNTRIED = {
    "samples_that_are_mixed": "the script draws other numbers for other samples",
    "only_whole_batches": "MXNetError: ",
    "imported_net_with_a_norm_over_devices": "MovesOn: ",
    "numbers_without_end": "gradients are not finite",
    "crash": "its process crashed",
    "noise_of_a_generator_of_its_own": "the script draws other numbers for other samples",
    "noise_of_a_new_generator": "not compute the same of the same samples twice",
    "samples_that_differ_each_time": "not compute the same of the same samples twice",
    "short_batches_without_a_step": "the script does not step in it",
    "short_batches_end_the_epoch": "GeneratorExit",
    "an_iterator_that_ends_early": "StopIteration",
    "a_queue_of_another_process": "talks to another process",
    "a_second_loader_of_gluons": "talks to another process",
}
Outcome = tuple[str | None, list[str]]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS)], capture_output=True, text=True, timeout=patient(240), check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = map(json.loads, done.stdout.splitlines())
    return {
        name: (raised, [re.sub(r"^\S+\.py:\d+: ", "", line) for line in said if "DT604" not in line])
        for name, raised, said in found
    }


@pytest.mark.parametrize("name", DIFFER)
def test_t2_what_each_share_has_another_number_of_is_refused(outcomes: dict[str, Outcome], name: str) -> None:
    raised, _ = outcomes[name]
    assert raised is not None
    assert "DT201: the gradient of " in raised


@pytest.mark.parametrize("name", ADD_UP)
def test_what_adds_up_trains(outcomes: dict[str, Outcome], name: str) -> None:
    raised, said = outcomes[name]
    assert raised is None
    assert [line.split(":")[0] for line in said] == ["the first batch is probed"]


@pytest.mark.parametrize(("name", "by"), DRAWN.items())
def test_a_number_that_each_worker_draws_anew_is_told(outcomes: dict[str, Outcome], name: str, by: str) -> None:
    raised, said = outcomes[name]
    assert raised is None
    assert said[0].startswith("the first batch is probed: ")
    assert said[1].startswith(f"DT203: the script draws a number for its batch ({by}), ")
    assert "epoch.random" in said[1]


@pytest.mark.parametrize(("name", "why"), UNTRIED.items())
def test_what_cannot_be_tried_is_said_and_trains(outcomes: dict[str, Outcome], name: str, why: str) -> None:
    raised, said = outcomes[name]
    assert raised is None
    assert len(said) == 1
    assert said[0].startswith("DT202: the first batch is not probed: ")
    assert why in said[0]


def test_who_means_what_each_share_counts_says_so(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["accepted"] == (None, [])


def test_every_script_is_looked_at(outcomes: dict[str, Outcome]) -> None:
    assert set(outcomes) == {*DIFFER, *ADD_UP, *DRAWN, *UNTRIED, "accepted"}
