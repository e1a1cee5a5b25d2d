"""What is left to do on a node: the laws of the plan, and that a real life follows it and prints it."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dyntrain.controller.local.pace import patient
from dyntrain.node_bootstrap.core.marker import MarkerState
from dyntrain.node_bootstrap.core.plan import (
    DONE,
    FAILED,
    Step,
    StepCondition,
    can_be_checked,
    finished_steps,
    pending,
    plan,
)
from dyntrain.node_bootstrap.host.errors import InvalidConfiguration, RetryLater
from dyntrain.node_bootstrap.host.processes import Children
from dyntrain.node_bootstrap.instance.mxnet_build import (
    CUDA_PROBE_SCRIPT,
    NO_CUDA_EXIT_CODE,
    NO_KERNEL_EXIT_CODE,
    check_mxnet_on_gpus,
    mxnet_builds_in,
)
from dyntrain.node_bootstrap.node import CONFIGURATION, TRY_AGAIN, print_plan, run_node
from dyntrain.node_bootstrap.steps.bootstrap import STEPS
from hypothesis import given
from hypothesis import strategies as st
from node_coordinator import start_coordinator
from node_fakes import World, living, processes_of, wait_until, world

NAMES = [step.step_name for step in STEPS]
SOME = st.sets(st.sampled_from(NAMES))
ALONE = pending("it is not there")


class Kept(Step):
    """A step that is done once it has been carried out."""

    def __init__(self, name: str, only_prepared: bool, condition: StepCondition) -> None:
        self.step_name, self.skipped_after_failure, self.condition = name, only_prepared, condition  # type: ignore[misc]

    async def check(self) -> StepCondition:
        return self.condition

    async def carry_out_step(self) -> None:
        self.condition = DONE


def with_done(names: set[str], **others: StepCondition) -> dict[Step, StepCondition]:
    """What is found on a node on which exactly these steps are done."""
    steps = [Kept(step.step_name, step.skipped_after_failure, ALONE) for step in STEPS]
    return {step: others.get(step.step_name, DONE if step.step_name in names else ALONE) for step in steps}


def left_of(conditions: dict[Step, StepCondition]) -> list[str]:
    return [planned.step.step_name for planned in plan(conditions)]


@given(SOME)
def test_whatever_is_done_is_not_done_again_and_whatever_is_not_is_in_the_plan_in_order(some: set[str]) -> None:
    """So a life that was cut short anywhere goes on with the rest."""
    conditions = with_done(some)
    assert left_of(conditions) == [name for name in NAMES if name not in some]
    assert {step.step_name for step in finished_steps(conditions, plan(conditions))} == some


@given(SOME)
def test_a_node_that_cannot_be_prepared_says_so_and_trains_nothing(some: set[str]) -> None:
    conditions = with_done(some - {"report", "supervise"}, **{"prepare-data": FAILED, "marker": FAILED})
    assert not {"prepare-data", "marker", "signal"} & set(left_of(conditions))
    assert left_of(conditions)[-2:] == ["report", "supervise"]


def test_a_step_is_only_looked_at_where_it_can_be_seen() -> None:
    """The volume that an earlier step mounts must not be looked at before: what is below it is another's."""
    steps = {step: step(None) for step in STEPS}  # type: ignore[arg-type]
    for number, kind in enumerate(STEPS):
        earlier = {steps[other]: DONE for other in STEPS[:number]}
        assert can_be_checked(steps[kind], earlier), f"{kind.step_name} needs what is only done after it"
        for needed in kind.needed_steps:
            assert not can_be_checked(steps[kind], {**earlier, steps[needed]: ALONE})  # type: ignore[index]


# ---- what the real life makes of it


def looks(here: World) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in here.layout.node_log.read_text().splitlines()]
    return [line for line in lines if line["message"] == "checked which steps are left"]


def test_a_start_logs_what_it_finds_done_and_what_is_left(tmp_path: Path) -> None:
    """After a reboot one wants to know what was kept, and why the rest was done again."""

    async def scenario() -> list[dict[str, object]]:
        with world(tmp_path) as here:
            coordinator = await start_coordinator(tmp_path)
            here.publish(coordinator.endpoint)
            here.configure(prepare_script=here.script("print('made the data')"))
            for lives in (1, 2, 3):
                if lives == 3:
                    here.layout.shell_profile.unlink()
                    here.script("print('made other data')")
                async with living(here.dependencies()):
                    await wait_until(lambda lives=lives: len(here.workers_started()) == lives, "the worker is started")
            await coordinator.stop()
            return looks(here)

    first, second, third = asyncio.run(scenario())
    assert first["done"] == ["sweep", "identity", "config", "volume", "package"]
    assert first["left"] == {
        "environment": "the profile, the workers file or the launch script is missing or outdated",
        "prepare-data": MarkerState.ABSENT.value,
        "marker": "the marker is written after a successful preparation",
        "report": "the controller has no report yet that this attempt is prepared",
        "signal": "no coordinator has received the node's ready signal yet",
        "supervise": "the node is not retired yet",
    }
    assert list(second["left"]) == ["report", "signal", "supervise"]  # type: ignore[call-overload]
    left: Any = third["left"]
    assert list(left) == ["environment", "prepare-data", "marker", "report", "signal", "supervise"]
    assert left["prepare-data"] == MarkerState.OTHER_SCRIPT.value
    assert processes_of(tmp_path) == []


def printed_plan(here: World, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert asyncio.run(print_plan(here.dependencies())) == 0
    return dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())


def test_the_plan_can_be_printed_and_printing_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To see on a host why it is not further, without starting anything there."""

    def files(here: World) -> set[Path]:
        return set(here.directory.rglob("*"))

    with world(tmp_path) as here:
        here.configure(prepare_script=here.script("raise SystemExit(1)"))
        before = files(here)
        printed = printed_plan(here, capsys)
        assert files(here) == before
    assert list(printed) == NAMES
    assert [name for name, condition in printed.items() if condition == "done"] == [
        "identity",
        "config",
        "volume",
        "package",
    ]
    assert printed["prepare-data"] == f"left: {MarkerState.ABSENT.value}"


def test_the_plan_says_why_a_script_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else one looks for the fault in the steps before it, which are done."""
    with world(tmp_path) as here:
        here.configure(prepare_script=str(tmp_path / "nowhere.py"))
        printed = printed_plan(here, capsys)
    assert printed["prepare-data"] == f"left: No such file or directory: {tmp_path / 'nowhere.py'}"
    assert printed["marker"] == "left: the marker is written after a successful preparation"


def test_a_plan_that_cannot_be_read_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with world(tmp_path) as here:
        here.configure(mount="nowhere")
        assert asyncio.run(print_plan(here.dependencies())) == CONFIGURATION
        here.parameters.values.clear()
        assert asyncio.run(print_plan(here.dependencies())) == TRY_AGAIN
    assert ["field mount" in line for line in capsys.readouterr().err.splitlines()] == [True, False]


def test_a_step_that_changes_nothing_ends_the_life_after_bounded_tries(tmp_path: Path) -> None:
    """Without a bound, something that removes what the node writes would keep it busy for ever, unseen."""

    async def scenario() -> int:
        with world(tmp_path) as here:
            here.configure(volume="fs-0123456789abcdef0")
            # looked at before, by the step before and after; never there in the end
            fickle = itertools.cycle([False, False, True])
            changed = replace(here.dependencies(), systemctl=("true",), is_mount=lambda path: next(fickle))
            code = await run_node(changed)
            assert "the step volume failed: it was carried out, but its result is missing" in here.logged()
            return code

    assert asyncio.run(scenario()) == TRY_AGAIN


@pytest.mark.parametrize("end", ["import os; os.kill(os.getpid(), 9)", "raise SystemExit(126)", "raise SystemExit(75)"])
def test_a_look_at_the_gpus_that_could_not_be_made_is_made_again(tmp_path: Path, end: str) -> None:
    """Exit code 78 is final: nobody would start the node again after a moment without memory."""

    async def scenario() -> None:
        probe = (sys.executable, "-c", end)
        await check_mxnet_on_gpus(1, probe, ("nvidia-smi",), Children(str(tmp_path), 1), tmp_path / "log")

    with pytest.raises(RetryLater, match="MXNet cannot use the GPUs"):
        asyncio.run(scenario())


@pytest.mark.parametrize(
    ("exit_code", "message"),
    [
        (NO_CUDA_EXIT_CODE, "the node has 2 GPUs, and its MXNet has no CUDA"),
        (1, "MXNet cannot use the GPUs: exit code 1: no lib"),
    ],
)
def test_gpus_that_mxnet_cannot_use_need_a_person(tmp_path: Path, exit_code: int, message: str) -> None:
    """It would train on the processor, at the price of the GPUs, or fail at the first `mx.gpu()`."""
    probe = (sys.executable, "-c", f"print('no lib', flush=True); raise SystemExit({exit_code})")
    with world(tmp_path) as here:
        for address in ("0000:00:1e.0", "0000:00:1f.0"):
            (here.layout.gpu_folder / address).mkdir(parents=True)
        code = asyncio.run(run_node(replace(here.dependencies(), cuda_probe=probe)))
        logged = here.logged()
    assert code == CONFIGURATION
    assert message in logged


def test_the_probe_tells_a_build_for_the_processor_alone() -> None:
    done = subprocess.run([sys.executable, "-c", CUDA_PROBE_SCRIPT], timeout=patient(60), check=False)
    assert done.returncode == NO_CUDA_EXIT_CODE


# As MXNet does on a chip for which it has no code: all goes well until somebody waits.
FAKE_MXNET = """
import sys, types
class MXNetError(RuntimeError): pass
base, context, runtime = types.ModuleType("base"), types.ModuleType("context"), types.ModuleType("runtime")
base.MXNetError = MXNetError
context.num_gpus = lambda: 2
runtime.Features = lambda: types.SimpleNamespace(is_enabled=lambda name: True)
gpu = lambda number: number
class Array:
    def __init__(self, ctx): self.ctx = ctx
    def __add__(self, other): return self
    def wait_to_read(self):
        print("waited on", self.ctx)
        if self.ctx == {bad}:
            raise MXNetError("Traceback (most recent call last): mxnet_op.h: Check failed: err == cudaSuccess "
                             "(209 vs. 0) : Name: mxnet_generic_kernel ErrStr:{error}\\n")
nd = types.SimpleNamespace(ones=lambda shape, ctx: Array(ctx))
"""
NO_KERNEL_IMAGE_ERROR = "no kernel image is available for execution on the device"


def fake_mxnet(folder: Path, bad: int, error: str = NO_KERNEL_IMAGE_ERROR) -> tuple[str, ...]:
    """A probe that finds this MXNet in place of the installed one."""
    folder.mkdir(exist_ok=True)
    (folder / "mxnet.py").write_text(FAKE_MXNET.format(bad=bad, error=error))
    aliases = "import sys, types; sys.modules['dyntrain.training.numpy_aliases'] = types.ModuleType('aliases'); "
    return (sys.executable, "-c", f"{aliases}sys.path.insert(0, {str(folder)!r})\n{CUDA_PROBE_SCRIPT}")


def test_the_probe_waits_for_a_kernel_on_each_gpu(tmp_path: Path) -> None:
    """Import, CUDA among the features, two GPUs and copies say nothing of the chip: the job would end at step 1."""
    fine, bad, full = (
        subprocess.run(probe, timeout=patient(60), check=False, capture_output=True, text=True)
        for probe in (
            fake_mxnet(tmp_path / "fine", bad=9),
            fake_mxnet(tmp_path / "bad", bad=1),
            fake_mxnet(tmp_path / "full", bad=0, error="out of memory"),
        )
    )
    assert (fine.returncode, fine.stdout.split("\n")[:2]) == (0, ["waited on 0", "waited on 1"])
    assert (bad.returncode, bad.stdout.splitlines()[-1]) == (NO_KERNEL_EXIT_CODE, f"GPU 1: {NO_KERNEL_IMAGE_ERROR}")
    assert full.returncode == TRY_AGAIN, "a worker that is ending still holds it"


def test_a_chip_that_mxnet_has_no_code_for_needs_a_person_who_is_told_what_to_take(tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\ncase "$*" in *name,compute_cap*noheader*) echo "NVIDIA H100 80GB HBM3, 9.0"; esac\n')
    smi.chmod(0o755)
    with world(tmp_path) as here:
        (here.layout.gpu_folder / "0000:00:1e.0").mkdir(parents=True)
        probe = fake_mxnet(tmp_path / "fake", bad=0)
        code = asyncio.run(run_node(replace(here.dependencies(), cuda_probe=probe, nvidia_smi=(str(smi),))))
        logged = here.logged()
    assert code == CONFIGURATION
    assert "mxnet-cu112 has no code for NVIDIA H100 80GB HBM3, 9.0, only for 5.0, 6.0, 7.0, 8.0, 8.6; " in logged
    assert "use instances of g4dn, g5, g6" in logged


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (NO_KERNEL_IMAGE_ERROR, "no code for this GPU, only for 5.0"),
        ("unspecified launch failure", "this GPU: GPU 0: unspecified launch"),
    ],
)
def test_without_nvidia_smi_the_same_is_said_of_a_gpu_without_a_name(tmp_path: Path, error: str, message: str) -> None:
    async def scenario() -> None:
        probe = fake_mxnet(tmp_path / "fake", bad=0, error=error)
        await check_mxnet_on_gpus(1, probe, (str(tmp_path / "none"),), Children(str(tmp_path), 1), tmp_path / "log")

    with pytest.raises(InvalidConfiguration, match=message) as caught:
        asyncio.run(scenario())
    assert len(str(caught.value).split()) <= 30


def test_two_builds_of_mxnet_are_told_from_packages_that_only_sound_like_one() -> None:
    """Each overwrites files of the other: what is imported then is neither."""
    assert mxnet_builds_in(["mxnet", "numpy", "mxnet-cu112", "mxnet-model-server"]) == ["mxnet", "mxnet-cu112"]
    assert mxnet_builds_in(["MXNet", "keras-mxnet"]) == ["mxnet"]


def test_a_user_who_is_not_there_needs_a_person(tmp_path: Path) -> None:
    """Else the training script would run as root after all, or crash again and again."""
    with world(tmp_path) as here:
        code = asyncio.run(run_node(replace(here.dependencies(), user="nobody-of-this-name")))
        logged = here.logged()
    assert code == CONFIGURATION
    assert "there is no user nobody-of-this-name to run the training script" in logged


def test_a_missing_package_needs_a_person_and_not_a_loop_of_crashing_processes(tmp_path: Path) -> None:
    with world(tmp_path) as here:
        code = asyncio.run(run_node(replace(here.dependencies(), packages=("dyntrain.training", "no_such_package"))))
        logged = here.logged()
    assert code == CONFIGURATION
    assert "no_such_package is not installed for" in logged
