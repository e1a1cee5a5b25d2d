"""The cluster's template as a text: its rules that moto does not know, and the user data line by line.

`make bare` runs the user data as a whole.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

import pytest
from dyntrain.controller.local.pace import patient
from local_template import template, template_text

PACKAGES = {"libgomp.so.1": ("libgomp", "libgomp1"), "libquadmath.so.0": ("libquadmath", "libquadmath0")}
OF_EVERY_SYSTEM = {  # glibc, and the runtime of gcc with which apt and dnf themselves are linked
    *(f"lib{name}" for name in ("c.so.6", "m.so.6", "dl.so.2", "rt.so.1", "pthread.so.0")),
    *("libstdc++.so.6", "libgcc_s.so.1"),
}


def test_every_group_has_both_hooks_from_its_first_instance_on() -> None:
    """A hook that is added after the group is made misses the instances that were launched meanwhile."""
    described = {
        name: one["Properties"]
        for name, one in template()["Resources"].items()
        if one["Type"] == "AWS::AutoScaling::AutoScalingGroup"
    }
    hooks = {
        name: {hook["LifecycleTransition"]: hook["DefaultResult"] for hook in group["LifecycleHookSpecificationList"]}
        for name, group in described.items()
    }
    launching, terminating = "autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING"
    base, elastic = ({launching: result, terminating: "CONTINUE"} for result in ("CONTINUE", "ABANDON"))
    assert hooks == {"MasterAutoScalingGroup": base, "BaseGroup": base, "WorkerGroup": elastic}, (
        "a base node stays for people"
    )


def test_the_network_lets_in_only_nodes_and_ssh_from_where_it_was_allowed() -> None:
    resources = template()["Resources"]
    rules = [rule for one in resources.values() for rule in one.get("Properties", {}).get("SecurityGroupIngress", ())]
    rules += [one["Properties"] for one in resources.values() if one["Type"] == "AWS::EC2::SecurityGroupIngress"]
    open_to = [rule["CidrIp"] for rule in rules if "CidrIp" in rule]
    assert open_to == [{"Ref": "SSHLocation"}]
    assert all(
        rule["SourceSecurityGroupId"] == {"GetAtt": "NodeSecurityGroup.GroupId"}
        for rule in rules
        if "CidrIp" not in rule
    )


def shell_lines(beginning: str) -> str:
    """One command of the user data, with the lines that go on from it."""
    lines = template()["Mappings"]["Node"]["Start"]["Text"].splitlines()
    first = next(at for at, line in enumerate(lines) if line.startswith(beginning))
    last = next(at for at in range(first, len(lines)) if not lines[at].endswith("\\"))
    return "\n".join(lines[first : last + 1])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("false", "exit code 1 at line 4: false"),
        ("cat /no/such | grep -q x", "exit code 1 at line 4: "),
        ('test -e /no/such || { echo "this node cannot train" >&2; exit 3; }', "exit code 3"),
        ("echo $NOT_THERE", "exit code 1"),
        ("(exit 7)", "exit code 7 at line 4: "),
        ("true", ""),
    ],
)
def test_user_data_that_die_say_so_on_the_console_and_to_the_controller(
    tmp_path: Path, line: str, message: str
) -> None:
    """The machine was kept alive for hours, and nothing said why it did not come."""
    python, report = tmp_path / "python", tmp_path / "told"
    python.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" > {report}\n')
    python.chmod(0o755)
    watch = template()["Mappings"]["Node"]["Watch"]["Text"].replace("/opt/dyntrain/bin/python", str(python))
    number = len(watch.splitlines()) + 2
    program = "\n".join(["set -euo pipefail", watch.rstrip(), line, "echo goes on"])
    done = subprocess.run(["bash", "-c", program], check=False, capture_output=True, text=True, timeout=patient(20))
    message = message.replace("line 4", f"line {number}")
    if not message:
        assert (done.returncode, report.exists()) == (0, False)
        assert done.stdout == "goes on\n"
        return
    assert done.returncode != 0
    assert message in done.stdout, done.stdout + done.stderr
    words = report.read_text().splitlines()
    assert words[:4] == ["-m", "dyntrain.node_bootstrap", "tell", "failed"]
    assert message in words[4]
    assert "as root: bash /var/lib/cloud/instance/scripts/part-001" in words[4]


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "OSError('libquadmath.so.0: cannot open shared object file: No such file or directory')",
        "ModuleNotFoundError(\"No module named 'distutils'\")",
    ],
)
def test_a_node_whose_mxnet_does_not_import_ends_there_and_says_why(tmp_path: Path, broken: str) -> None:
    """Else it would report that it is prepared, be counted, and fail in the training script. What is the matter is in
    the last line, which is what people are told: it is not always the same library.
    """
    if broken:
        (tmp_path / "mxnet.py").write_text(f"raise {broken}\n")
    done = subprocess.run(
        [
            "bash",
            "-c",
            "\n".join(["set -euo pipefail", shell_lines("said="), shell_lines('"$python" -W '), "echo goes on"]),
        ],
        env={**os.environ, "python": sys.executable, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=patient(90),
        check=False,
    )
    assert (done.returncode, done.stdout) == ((1, "") if broken else (0, "goes on\n")), done.stderr
    if broken:
        kind, _, words = broken.partition("(")
        last = done.stderr.splitlines()[-1]
        assert last.startswith(f"this node cannot train: MXNet does not import: {kind}: {words[1:20]}")


def test_nodes_install_every_library_that_mxnets_wheel_does_not_bring() -> None:
    """Two witnesses: the loader, for what the wheel lacks; the wheel's own page, for the packages that have it."""
    folder = distribution("mxnet").locate_file("mxnet")
    linked = subprocess.run(
        ["ldd", f"{folder}/libmxnet.so"], capture_output=True, text=True, timeout=patient(20), check=True
    ).stdout
    outside = {line.split()[0] for line in linked.splitlines() if "=>" in line and str(folder) not in line}
    lacking = outside - OF_EVERY_SYSTEM
    assert lacking == set(PACKAGES)
    words = " ".join(str(distribution("mxnet").metadata.get_payload()).split())
    assert "`sudo apt install libquadmath0`" in words
    assert "`sudo yum install libquadmath`" in words
    images = template()["Mappings"]["Image"]
    for of_red_hat, of_debian in PACKAGES.values():
        assert of_red_hat in installed(images["AmazonLinux"]["Install"], "dnf install")
        assert of_debian in installed(images["Ubuntu"]["Install"], "apt-get install")


def installed(script: str, command: str) -> set[str]:
    return {word for line in script.splitlines() if line.startswith(command) for word in line.split()}


@pytest.mark.parametrize("volume", ["of-the-stack", "given"])
@pytest.mark.parametrize("there", ["nothing", "a folder", "a link"])
def test_of_a_volume_that_was_given_only_the_jobs_folder_is_made_ones_own(
    tmp_path: Path, volume: str, there: str
) -> None:
    """The rest of it may be other people's; and root must not follow a link that the training script left there."""
    if there == "a folder":
        (tmp_path / "dyntrain").mkdir()
    elif there == "a link":
        (tmp_path / "dyntrain").symlink_to("/nowhere")
    lines = [shell_lines(first) for first in ('[ "$VOLUME"', "jobs=", '[ -e "$jobs"', "runuser -u dyntrain -- test")]
    fakes = (
        "stat() { echo 0; }; chown() { echo chown $*; }; chmod() { echo chmod $*; }; install() { echo install $*; }; "
        f"runuser() {{ [ '{there}' = nothing ]; }}"
    )
    done = subprocess.run(
        ["bash", "-c", "\n".join(["set -euo pipefail", fakes, *lines])],
        env={**os.environ, "VOLUME": volume, "MOUNT": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=patient(20),
        check=False,
    )
    top = [f"chown dyntrain:dyntrain {tmp_path}", f"chmod 2775 {tmp_path}"] if volume == "of-the-stack" else []
    folder = [f"install -d -o dyntrain -g dyntrain -m 2775 {tmp_path}/dyntrain"] if there == "nothing" else []
    assert done.stdout.splitlines() == top + folder
    assert done.returncode == (0 if there == "nothing" else 1)
    assert there == "nothing" or f"as root: chown -R 7411:7411 {tmp_path}/dyntrain" in done.stderr


def test_the_user_data_finds_the_unit_in_the_installed_package() -> None:
    done = subprocess.run(
        ["bash", "-euc", f'{shell_lines("package=")}\ncat "$package/dyntrain-node.service"'],
        env={**os.environ, "python": sys.executable},
        capture_output=True,
        text=True,
        timeout=patient(30),
        check=False,
    )
    assert "ExecStart=" in done.stdout, done.stderr


def test_every_arn_is_of_the_partition_in_which_the_stack_is() -> None:
    """China and GovCloud. By the text: moto knows one partition only."""
    text = template_text()
    assert set(re.findall(r"\barn:([^:]*(?:::[^:]*)?):", text)) == {"${AWS::Partition}"}
    assert not re.search(r"Service: [a-z0-9]+\.amazonaws\.com", text), "the suffix of a service's name differs, too"
