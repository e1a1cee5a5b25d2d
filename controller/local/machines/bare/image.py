"""Build the root file system that all bare machines share, with the program mmdebstrap. No machine writes to the shared
root file system.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from dyntrain.controller.local.errors import LocalCloudError
from dyntrain.controller.local.machines.bare import stand_ins

DEBIAN_SUITE = "bookworm"
BUILD_SECONDS = 1200.0  # limit for the build, which takes 45 s on two idle cores
PACKAGE_BY_PROGRAM = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "slirp4netns": "slirp4netns",
    "unshare": "util-linux",
    "ip": "iproute2",
    "git": "git",
}


class BareUnavailable(LocalCloudError):
    """Raised when this host or user cannot run bare machines."""


def check_host(user_id: int) -> None:
    """Check that this host has the rights, programs and devices that bare machines need. Raises BareUnavailable, whose
    message says what to do.
    """
    if user_id != 0:
        raise BareUnavailable("bare machines boot a systemd of their own, which only root can do; run this as root")
    if missing_packages := sorted(
        {package for program, package in PACKAGE_BY_PROGRAM.items() if shutil.which(program) is None}
    ):
        raise BareUnavailable(f"bare machines need missing programs: apt-get install {' '.join(missing_packages)}")
    if not Path("/dev/net/tun").exists():
        raise BareUnavailable(
            "bare machines reach the package registries through /dev/net/tun, which this host does not have"
        )


def user_data_packages(template: str) -> list[str]:
    """The packages that the template's user data installs. The packages are downloaded once, when the root file system
    is built, and not at every launch.
    """
    package_lines = re.findall(r"apt-get install -y -q ([a-z0-9 .+-]+)$", template, re.M)
    return sorted({package for package_line in package_lines for package in package_line.split()})


def build_root(folder: Path, template: str) -> Path:
    """Build the root file system if it does not exist, and return the root file system's folder. The folder's name has
    a digest of everything from which the root file system is built. If several processes call this function at once,
    one process builds and the other processes wait. Raises BareUnavailable.
    """
    check_host(os.geteuid())
    packages = user_data_packages(template)
    root_ingredients = repr(
        (
            DEBIAN_SUITE,
            stand_ins.IMAGE_PACKAGES,
            stand_ins.ROOT_FILES,
            stand_ins.EFS_REPOSITORY_FILES,
            stand_ins.LOGIN_USER,
            packages,
        )
    )
    root = folder.absolute() / f"root-{hashlib.sha256(root_ingredients.encode()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        if root.exists():
            return root
        for old_root in folder.glob("*root-*"):
            shutil.rmtree(old_root)
        unfinished_root = root.with_name(f".{root.name}")
        # In a mount namespace of its own, mmdebstrap's mounts vanish with its process.
        argv = ["unshare", "--mount", "mmdebstrap", "--variant=minbase", "--skip=cleanup/apt/cache"]
        argv += [f"--include={','.join(stand_ins.IMAGE_PACKAGES)}"]
        argv += [f'--customize-hook=chroot "$1" useradd --create-home --shell /bin/bash {stand_ins.LOGIN_USER}']
        argv += [f'--customize-hook=chroot "$1" apt-get install -y -q --download-only {" ".join(packages)}']
        try:
            subprocess.run(
                [*argv, DEBIAN_SUITE, str(unfinished_root)],
                check=True,
                timeout=BUILD_SECONDS,
                capture_output=True,
                text=True,
            )
            for file_name in ("resolv.conf", "hostname"):  # mmdebstrap copies these files from this host
                (unfinished_root / "etc" / file_name).unlink(missing_ok=True)
            (unfinished_root / "etc/machine-id").write_text("")
            stand_ins.install_stand_ins(unfinished_root)
        except (OSError, subprocess.SubprocessError) as error:
            error_output = getattr(error, "stderr", None) or str(error)
            raise BareUnavailable(f"the root of bare machines could not be built: {error_output[-2000:]}") from error
        unfinished_root.rename(root)
    return root
