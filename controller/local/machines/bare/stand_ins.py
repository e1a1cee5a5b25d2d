"""Replacements (stand-ins) in the root file system of a bare machine, for things that exist only in AWS or in Ubuntu's
image. Everything without a stand-in is real: apt, pip, systemd, mount, and the user data's own text.

| user data or node expects | stands in for it here | source |
|---|---|---|
| Ubuntu's server image | Debian bookworm, with `IMAGE_PACKAGES` installed, which that image has too | (1) |
| its user `ubuntu`, made by cloud-init before user data runs | a user of that name | (2) |
| cloud-init, which runs user data once, as root | `user-data.service` and its script | (2) |
| github.com/aws/efs-utils v1.36.0 with `build-deb.sh` | a repository on the machine with this tag and script | (3) |
| its package `build/amazon-efs-utils*deb` with `mount.efs` | a package whose `mount.efs` binds `/srv/efs` | (3) |
| the CloudWatch agent's package in S3 | nothing: the download fails, and user data continues without the agent | (4) |
| an EFS file system | a folder of the embedded cloud (`machines.volumes`), bound to `/srv/efs` | (3) |
| an AMI that knows its region's endpoints | `AWS_ENDPOINT_URL` in systemd's `DefaultEnvironment` | (5) |

Not replaced: Amazon Linux 2023 with its package names and dnf; the stack's wait condition, which moto lacks. The
machine's `dyntrain-ready.service` runs, but has no wait condition to signal.

Source (3) was read at the tag v1.36.0; the statements of the other sources were not compared with a machine in EC2.
Paths without a server are below https://docs.aws.amazon.com/:

(1) https://cloud-images.ubuntu.com/releases/noble/release/ubuntu-24.04-server-cloudimg-amd64.manifest
(2) AWSEC2/latest/UserGuide/user-data.html
(3) https://github.com/aws/efs-utils/blob/v1.36.0/build-deb.sh
(4) AmazonCloudWatch/latest/monitoring/download-CloudWatch-Agent-on-EC2-Instance-commandline-first.html
(5) sdkref/latest/guide/feature-ss-endpoints.html
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

IMAGE_PACKAGES = (
    "systemd",
    "systemd-sysv",
    "dbus",
    "udev",
    "procps",
    "iproute2",
    "ca-certificates",
    "curl",
    "python3",
)
LOGIN_USER = "ubuntu"
SHARED_FOLDER = "/srv/efs"
DOWNLOAD_FOLDER = "/var/cache/pip"
EFS_REPOSITORY = "https://github.com/aws/efs-utils"
EFS_TAG = "v1.36.0"
CLOUDWATCH_AGENT_HOST = "amazoncloudwatch-agent.s3.amazonaws.com"
GIT_SECONDS = 60.0  # limit for a git command

ROOT_FILES = {
    "etc/systemd/system/user-data.service": """\
[Unit]
Description=User data, at the first boot of the instance
Wants=network-online.target
After=network-online.target
ConditionPathExists=!/var/lib/user-data

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/user-data
StandardOutput=journal+console
StandardError=inherit

[Install]
WantedBy=multi-user.target
""",
    "usr/local/sbin/user-data": """\
#!/bin/sh
set -eu
service=http://169.254.169.254/latest
lifetime='X-aws-ec2-metadata-token-ttl-seconds: 60'
token=$(curl -fsS --retry 10 --retry-connrefused -X PUT -H "$lifetime" "$service/api/token")
mkdir -m 700 /var/lib/user-data
curl -fsS -H "X-aws-ec2-metadata-token: $token" -o /var/lib/user-data/script "$service/user-data"
chmod 700 /var/lib/user-data/script
exec /var/lib/user-data/script
""",
    "etc/gitconfig": f'[url "file:///usr/share/efs-utils"]\n\tinsteadOf = {EFS_REPOSITORY}\n',
    "etc/hosts": f"127.0.0.1 localhost {CLOUDWATCH_AGENT_HOST}\n",
}

EFS_REPOSITORY_FILES = {
    "build-deb.sh": """\
#!/usr/bin/env sh
set -ex
mkdir -p build/root/DEBIAN build/root/sbin
install -m 644 control build/root/DEBIAN/control
install -m 755 mount.efs build/root/sbin/mount.efs
dpkg-deb --build build/root build/amazon-efs-utils-1.36.0-1_all.deb
""",
    "control": """\
Package: amazon-efs-utils
Version: 1.36.0
Architecture: all
Maintainer: nobody <nobody@localhost>
Depends: python3, nfs-common, stunnel4, openssl, util-linux
Description: stands in for the EFS mount helper
""",
    "mount.efs": f"""\
#!/bin/sh
# mount.efs FILE_SYSTEM:/ DIRECTORY [-o OPTIONS]
case "$1" in fs-*:/) exec mount --bind {SHARED_FOLDER} "$2" ;; esac
echo "mount.efs: $1 is no EFS file system" >&2
exit 32
""",
}


def install_stand_ins(root: Path) -> None:
    """Install the replacements for things that exist only in AWS into a machine's root file system. Raises OSError or
    subprocess.SubprocessError when the installation fails.
    """
    _write_files(root, ROOT_FILES)
    (root / "etc/systemd/system/multi-user.target.wants").mkdir(parents=True, exist_ok=True)
    (root / "etc/systemd/system/multi-user.target.wants/user-data.service").symlink_to("../user-data.service")
    (root / SHARED_FOLDER.strip("/")).mkdir(parents=True)
    efs_repository = root / "usr/share/efs-utils"
    _write_files(efs_repository, EFS_REPOSITORY_FILES)
    git_environment = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_SYSTEM": os.devnull,
        "PATH": os.environ.get("PATH", os.defpath),
    }
    for git_role in ("AUTHOR", "COMMITTER"):
        git_environment |= {f"GIT_{git_role}_NAME": "nobody", f"GIT_{git_role}_EMAIL": "nobody@localhost"}
    for git_arguments in (
        ["init", "--quiet"],
        ["add", "."],
        ["commit", "--quiet", "--message", "a stand-in"],
        ["tag", EFS_TAG],
    ):
        subprocess.run(
            ["git", "-C", str(efs_repository), *git_arguments],
            check=True,
            timeout=GIT_SECONDS,
            env=git_environment,
            capture_output=True,
        )


def _write_files(folder: Path, text_by_name: dict[str, str]) -> None:
    for file_name, file_text in text_by_name.items():
        path = folder / file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file_text, encoding="utf-8")
        path.chmod(0o755 if file_text.startswith("#!") else 0o644)
