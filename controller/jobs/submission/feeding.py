"""Build the command of a job that reads data channels. The feed is a program that supplies the data channels. The job's
plan contains the feed, which runs as the parent process of the user's command.
"""

from __future__ import annotations

import base64
import io
import zipfile
from functools import cache
from importlib.resources import files

from dyntrain.controller.jobs.submission.request import JobRequest

PACKAGE_FOLDERS = ("", "training/")
FEED_MODULES = (
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
START_SCRIPT = """\
for python in python3 /opt/dyntrain-job/tools/bin/python; do "$python" -c 'import boto3' 2>/dev/null && break; done
"$python" -c 'import base64, sys; open(".dyntrain-feed", "wb").write(base64.b85decode(sys.argv[1]))' "$0" || exit 1
exec "$python" .dyntrain-feed "$@"
"""
_ENTRY_DATE = (1980, 1, 1, 0, 0, 0)  # of each file in the archive, so that its bytes never change


def command_of(request: JobRequest, region: str) -> list[str]:
    """The command that each node of the job runs. If the job has data channels, the command runs the feed, which starts
    the user's command.
    """
    if not request.channels:
        return list(request.command)
    options = [argument for channel in request.channels for argument in ("--channel", channel)]
    options += ["--root", request.data_root, "--workers-per-node", str(request.workers_per_node), "--region", region]
    return ["/bin/sh", "-c", START_SCRIPT, encode_feed(), *options, "--", *request.command]


@cache
def encode_feed() -> str:
    """The feed's program as base85 text, which is far shorter than Linux's limit of 131,072 bytes for one command-line
    argument.
    """
    return base64.b85encode(zip_feed()).decode()


def zip_feed() -> bytes:
    """The feed's program as a zip archive that Python can run. Every call of `zip_feed` returns an archive with the
    same bytes.
    """
    zip_buffer = io.BytesIO()
    with zipfile.ZipFile(zip_buffer, "w", zipfile.ZIP_DEFLATED) as zip_file:
        texts_by_path = {f"dyntrain/{folder}__init__.py": "" for folder in PACKAGE_FOLDERS}
        for module_name in FEED_MODULES:
            path = f"training/feed/{module_name}.py"
            texts_by_path[f"dyntrain/{path}"] = files("dyntrain").joinpath(path).read_text(encoding="utf-8")
        texts_by_path["__main__.py"] = "import sys\nfrom dyntrain.training.feed.command import main\nsys.exit(main())\n"
        for file_name, text in sorted(texts_by_path.items()):
            zip_entry = zipfile.ZipInfo(file_name, _ENTRY_DATE)
            zip_entry.compress_type = zipfile.ZIP_DEFLATED
            zip_file.writestr(zip_entry, text)
    return zip_buffer.getvalue()
