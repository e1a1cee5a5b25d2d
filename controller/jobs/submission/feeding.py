"""A job's command with data channels: the feed, a program inside the plan, runs as the command's parent."""

from __future__ import annotations

import base64
import io
import zipfile
from functools import cache
from importlib.resources import files

from dyntrain.controller.jobs.submission.request import JobRequest

PACKAGES = ("", "training/")
MODULES = (
    "__init__",
    "channels",
    "command",
    "configuration",
    "contents",
    "copying",
    "crc",
    "dealing",
    "errands",
    "feeder",
    "fifos",
    "frames",
    "guardian",
    "keeper",
    "listing",
    "offered",
    "opened",
    "places",
    "pump",
    "resuming",
    "stream",
)
# The job's python3 comes first, since it may have google-crc32c. The other Python has boto3, which an image may lack.
SCRIPT = """\
for python in python3 /opt/dyntrain-job/tools/bin/python; do "$python" -c 'import boto3' 2>/dev/null && break; done
"$python" -c 'import base64, sys; open(".dyntrain-feed", "wb").write(base64.b85decode(sys.argv[1]))' "$0" || exit 1
exec "$python" .dyntrain-feed "$@"
"""
_DATE = (1980, 1, 1, 0, 0, 0)


def command_of(request: JobRequest, region: str) -> list[str]:
    """The command that a node runs: the person's, wrapped by the feed where there are channels."""
    if not request.channels:
        return list(request.command)
    options = [word for channel in request.channels for word in ("--channel", channel)]
    options += ["--root", request.data_root, "--workers-per-node", str(request.workers_per_node), "--region", region]
    return ["/bin/sh", "-c", SCRIPT, packed(), *options, "--", *request.command]


@cache
def packed() -> str:
    """The feed's program as text. Far smaller than Linux's limit for one argument, 131,072 bytes."""
    return base64.b85encode(program()).decode()


def program() -> bytes:
    """A zip archive that Python can run, with the same bytes each time."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as zip_file:
        parts = {f"dyntrain/{package}__init__.py": "" for package in PACKAGES}
        for name in MODULES:
            path = f"training/feed/{name}.py"
            parts[f"dyntrain/{path}"] = files("dyntrain").joinpath(path).read_text(encoding="utf-8")
        parts["__main__.py"] = "import sys\nfrom dyntrain.training.feed.command import main\nsys.exit(main())\n"
        for name, text in sorted(parts.items()):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            zip_file.writestr(entry, text)
    return content.getvalue()
