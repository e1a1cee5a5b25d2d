"""What the tests want of the system is installed where it can be had, and does not end the run where it cannot."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dyntrain.controller.local.pace import patient

PACKAGES = Path(__file__).parents[2] / ".ci" / "packages"
APT = """#!/bin/sh
[ "$1" = update ] && exit
for package; do :; done
echo "$package" >>"$ASKED"
case "$*" in *chromium*) exit 100;; esac
"""


def test_a_package_that_this_system_does_not_know_keeps_no_other_away(tmp_path: Path) -> None:
    """As Chromium on Ubuntu, where it is no package of apt."""
    packages = tmp_path / "asked"
    for name, text in (("apt-get", APT), ("id", "#!/bin/sh\necho 0\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/bash", str(PACKAGES)],
        env={"PATH": str(tmp_path), "ASKED": str(packages)},
        capture_output=True,
        text=True,
        timeout=patient(60),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {"openssh-client", "nodejs", "chromium"} <= set(packages.read_text().splitlines())
    assert done.stderr == "could not be installed: chromium\n"
