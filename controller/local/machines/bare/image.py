"""Build the root file system that all bare machines share, once, with mmdebstrap. No machine writes to this root."""

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

SUITE = "bookworm"
MAKE_SECONDS = 1200.0  # 45 s on two idle cores
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


def check_host(user: int) -> None:
    """Check that this host can run bare machines. Raises BareUnavailable, which says what to do."""
    if user != 0:
        raise BareUnavailable("bare machines boot a systemd of their own, which only root can do; run this as root")
    if missing := sorted({package for program, package in PACKAGE_BY_PROGRAM.items() if shutil.which(program) is None}):
        raise BareUnavailable(f"bare machines need missing programs: apt-get install {' '.join(missing)}")
    if not Path("/dev/net/tun").exists():
        raise BareUnavailable(
            "bare machines reach the package registries through /dev/net/tun, which this host does not have"
        )


def packages_of(template: str) -> list[str]:
    """Packages that the template's user data installs, to be downloaded once instead of at every launch."""
    lines = re.findall(r"apt-get install -y -q ([a-z0-9 .+-]+)$", template, re.M)
    return sorted({word for line in lines for word in line.split()})


def make(folder: Path, template: str) -> Path:
    """Build the root if it does not exist, and return its folder, named by a digest of its ingredients. If several
    callers run at once, only one builds. Raises BareUnavailable.
    """
    check_host(os.geteuid())
    packages = packages_of(template)
    recipe = repr(
        (SUITE, stand_ins.IMAGE_PACKAGES, stand_ins.FILES, stand_ins.EFS_FILES, stand_ins.LOGIN_USER, packages)
    )
    root = folder.absolute() / f"root-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
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
                [*argv, SUITE, str(unfinished_root)], check=True, timeout=MAKE_SECONDS, capture_output=True, text=True
            )
            for name in ("resolv.conf", "hostname"):  # mmdebstrap copies these files from this host
                (unfinished_root / "etc" / name).unlink(missing_ok=True)
            (unfinished_root / "etc/machine-id").write_text("")
            stand_ins.install(unfinished_root)
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", None) or str(error)
            raise BareUnavailable(f"the root of bare machines could not be built: {output[-2000:]}") from error
        unfinished_root.rename(root)
    return root
