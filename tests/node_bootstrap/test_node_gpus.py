"""How many GPUs a host is said to have: scripts size their batches and processes by it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from dyntrain.node_bootstrap.host.processes import Children
from dyntrain.node_bootstrap.instance.gpus import count_gpus, count_listed_gpus
from node_fakes import processes_of

LISTED = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-5d5ba0d6-d33d-2b2c-524d-9e3d8d2b8a77)
  MIG 3g.20gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: GPU-4404041a-04cf-1ccf-9e70-f139a9b1e23c)
"""


def count(directory: Path, program: str | None) -> int:
    """`program`: what nvidia-smi is; None: there is none."""
    command: tuple[str, ...] = (
        (sys.executable, "-c", program) if program is not None else (str(directory / "no-such-program"),)
    )

    async def scenario() -> int:
        children = Children(str(directory), 1)
        try:
            return await count_gpus(directory / "gpus", command, children, directory / "nvidia-smi.log")
        finally:
            assert processes_of(directory) == []
            await children.stop_all(0.0)

    return asyncio.run(scenario())


def test_the_drivers_directory_counts_and_its_tool_is_not_asked(tmp_path: Path) -> None:
    for name in ("0000:00:1b.0", "0000:00:1c.0", "0000:00:1d.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
        (tmp_path / "gpus" / name / "information").touch()
    assert count(tmp_path, "print('GPU 0: another answer')") == 3


def test_a_driver_that_is_not_loaded_yet_is_asked_by_its_tool(tmp_path: Path) -> None:
    """Right after boot the directory may be missing, and the node would train on its CPU for its whole life."""
    assert count(tmp_path, f"import sys; assert sys.argv[1:] == ['-L']; print({LISTED!r})") == 2
    assert count_listed_gpus("No devices found.\n") == 0


@pytest.mark.parametrize(
    "program", [None, "raise SystemExit('Failed to communicate with the driver')"], ids=["no driver", "a broken driver"]
)
def test_without_a_driver_that_answers_there_are_none(
    tmp_path: Path, program: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    assert count(tmp_path, program) == 0
    assert ("does not list the GPUs" in caplog.text) == (program is not None)
