"""The EC2 user data of a job's machines: a shell script that contains the nodes' program and runs on unmodified machine
images.
"""

from __future__ import annotations

import ast
import base64
import io
import re
import shlex
import tokenize
import zipfile
import zlib
from functools import cache
from importlib.resources import files

SCRIPT_MARK = "# dyntrain-job "  # by which the embedded cloud recognises such a script
LIMIT_BYTES = 16_384  # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-add-user-data.html
PROGRAM_FILES = (
    "controller/contract/job_files.py",
    *(
        f"node_bootstrap/job/{name}.py"
        for name in ("__init__", "plan", "metadata", "bucket", "output", "command", "program")
    ),
)
PACKAGE_FOLDERS = ("", "controller/", "controller/contract/", "node_bootstrap/")
_ENTRY_DATE = (1980, 1, 1, 0, 0, 0)  # of each file in the archive, so that its bytes never change

# The script's boto3 is newer than 1.35.2, the first that writes an object only where there is none
# (https://github.com/boto/boto3/blob/develop/.changes/1.35.2.json). The script reads itself by "$0", since
# user data are run from a file: believed, from https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html
_UNPACK_SCRIPT = (
    "import base64,sys,zlib;sys.stdout.buffer.write(zlib.decompress(base64.b85decode(sys.stdin.read().strip())))"
)
_SCRIPT_TEMPLATE = """\
#!/bin/bash
{mark}{arguments}
# Runs one node of a job. However this script ends, the machine is switched off, and with that terminated.
set -u
dir=/opt/dyntrain-job
trap 'sync; systemctl poweroff || poweroff -f' EXIT
# Also when the program hangs, an hour after the job's time
systemd-run --on-active={seconds} systemctl poweroff || shutdown -h +{minutes}
mkdir -p $dir /opt/ml
chmod 711 $dir
id dyntrain-job || useradd --system --create-home --shell /bin/bash dyntrain-job
chown dyntrain-job /opt/ml
tail -n 1 "$0" | cut -c 2- | python3 -c '{unpack}' > $dir/node.pyz || exit 1
python=python3
# An older boto3 cannot write what is written only once, which a job's verdict is
if ! python3 -c 'import boto3; exit([int(part) for part in boto3.__version__.split(".")[:2]] < [1, 36])'; then
  python=$dir/tools/bin/python
  for i in 1 2 3 4 5; do
    if ! [ -x $dir/tools/bin/pip ] && ! python3 -m venv $dir/tools; then
      rm -rf $dir/tools
      apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q python3-venv
      python3 -m venv $dir/tools
    fi
    $python -m pip install -q 'boto3>=1.36' && break
    sleep 10
  done
fi
$python $dir/node.pyz {arguments} --user dyntrain-job
exit
"""


def zip_program() -> bytes:
    """The nodes' program as a zip archive that Python can run. Every call of `zip_program` returns an archive with the
    same bytes. The archive is not compressed, because `_packed_program` compresses the whole archive.
    """
    zip_buffer = io.BytesIO()
    with zipfile.ZipFile(zip_buffer, "w", zipfile.ZIP_STORED) as zip_file:
        texts_by_path = {f"dyntrain/{folder}__init__.py": "" for folder in PACKAGE_FOLDERS}
        for file_name in PROGRAM_FILES:
            source = files("dyntrain").joinpath(file_name).read_text(encoding="utf-8")
            texts_by_path[f"dyntrain/{file_name}"] = minify_source(source)
        texts_by_path["__main__.py"] = (
            "import sys\nfrom dyntrain.node_bootstrap.job.program import main\nsys.exit(main())\n"
        )
        for file_name, text in sorted(texts_by_path.items()):
            zip_file.writestr(zipfile.ZipInfo(file_name, _ENTRY_DATE), text)
    return zip_buffer.getvalue()


def minify_source(source: str) -> str:
    """Remove comments and docstrings from Python source code. The code keeps its line numbers, so that tracebacks match
    the original source.
    """
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            docstring = node.body[0]
            first_line, last_line = docstring.lineno - 1, docstring.end_lineno or docstring.lineno
            lines[first_line:last_line] = [""] * (last_line - first_line)
            if len(node.body) == 1:
                lines[first_line] = " " * docstring.col_offset + "pass"
    for token in tokenize.generate_tokens(io.StringIO("\n".join([*lines, ""])).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    return "\n".join([*lines, ""])


def user_data(name: str, run: str, bucket: str, region: str, max_hours: float) -> str:
    """The user-data script of a job's machines, which is smaller than EC2's limit for user data. The script contains no
    settings of the job, because everybody who may describe instances can read the script.
    """
    arguments = shlex.join([f"--name={name}", f"--run={run}", f"--bucket={bucket}", f"--region={region}"])
    shutdown_seconds = int(max_hours * 3600) + 3600
    script = _SCRIPT_TEMPLATE.format(
        mark=SCRIPT_MARK,
        arguments=arguments,
        seconds=shutdown_seconds,
        minutes=shutdown_seconds // 60,
        unpack=_UNPACK_SCRIPT,
    )
    return f"{script}#{_packed_program()}\n"


@cache
def _packed_program() -> str:
    return base64.b85encode(zlib.compress(zip_program(), 9)).decode()


def program_of(text: str) -> tuple[bytes, list[str]] | None:
    """The program inside a job's user data, and the program's arguments. Returns None if `text` is not the user data of
    a job.
    """
    header_match = re.match(rf"#!/bin/bash\n{SCRIPT_MARK}(.*)\n", text)
    if header_match is None:
        return None
    return zlib.decompress(base64.b85decode(text.rstrip("\n").rpartition("\n#")[2])), shlex.split(header_match[1])
