"""What nodes install, as the registry has it: a version that was never there, or is not for nodes' systems, would show
on a node only.
"""

from __future__ import annotations

import re
import subprocess

import pytest
from asking import ROOT
from dyntrain.controller.local.pace import patient

UV = ROOT / "build" / "tools" / "uv" / "bin" / "uv"
# Amazon Linux 2023 has Python 3.11 and glibc 2.34, Ubuntu 24.04 has 3.12 and 2.39
SYSTEMS = ("3.11", "3.12")


@pytest.mark.parametrize("python", SYSTEMS)
def test_the_builds_of_mxnet_and_cudas_libraries_are_wheels_that_pypi_has_for_nodes(python: str) -> None:
    text = (ROOT / "node_bootstrap" / "cluster.template.yaml").read_text()
    pins = sorted(set(re.findall(r"\b(?:nvidia|mxnet)[a-z0-9-]*==[0-9][0-9.]*[0-9]", text)))
    assert {pin.partition("==")[0] for pin in pins} >= {"mxnet", "mxnet-cu112", "nvidia-cudnn-cu11"}
    plain = ["--quiet", "--no-deps", "--no-header", "--no-annotate", "--only-binary", ":all:"]
    done = subprocess.run(
        [UV, "pip", "compile", *plain, "--python-version", python, "--python-platform", "x86_64-manylinux_2_34", "-"],
        input="\n".join(pins),
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert (done.returncode, sorted(done.stdout.split())) == (0, pins), done.stderr
