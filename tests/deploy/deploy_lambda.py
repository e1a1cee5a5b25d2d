"""Runs a function of the deployed zip as Lambda does: unpacked, in an interpreter that has the zip and boto3 and
nothing else of ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from deploy_packages import logical, template
from dyntrain.controller.local.pace import patient

PROGRAM = """
import json, sys, importlib
zip_folder, *runtime = sys.argv[1].split(":")
sys.path[:0] = [zip_folder, *runtime]  # as in Lambda: the zip before the runtime's own boto3
module, _, name = sys.argv[2].rpartition(".")
handler = getattr(importlib.import_module(module), name)
class Context:
    function_name = name; aws_request_id = "r"; invoked_function_arn = "a"; memory_limit_in_mb = 256
answer = handler(json.load(sys.stdin), Context())
print("ANSWER " + json.dumps(answer))
files = {name: getattr(module, "__file__", None) or "" for name, module in sys.modules.items()}
loaded = [name.split(".") for name, file in files.items() if file.startswith(zip_folder)]
print("FROM " + json.dumps(sorted({".".join(name[: 2 if name[0] == "dyntrain" else 1]) for name in loaded})))
"""
RUNTIME = ("boto3", "botocore", "s3transfer", "urllib3", "dateutil", "six.py")  # jmespath comes with the zip


@dataclass(frozen=True)
class Deployed:
    """`variables`: the endpoint and keys that the functions' clients use, and the table."""

    package: Path
    folder: Path
    variables: Mapping[str, str]

    @classmethod
    def unpacked(cls, package: Path, folder: Path, variables: Mapping[str, str]) -> Deployed:
        with zipfile.ZipFile(package / "deployment.zip") as archive:
            archive.extractall(folder / "task")
        (folder / "runtime").mkdir()
        site = Path(boto3.__file__).parents[1]
        for name in RUNTIME:
            (folder / "runtime" / name).symlink_to(site / name)
        return cls(package, folder, variables)

    def invoke(self, function: str, event: object) -> tuple[Any, set[str]]:
        """The handler's answer, and the top-level modules that it took from the zip, of ours the folders. Fails the
        test when the handler raises.
        """
        handler = template(self.package)["Resources"][logical(function)]["Properties"]["Handler"]
        done = subprocess.run(
            [
                sys.executable,
                "-I",
                "-S",
                "-B",
                "-c",
                PROGRAM,
                f"{self.folder / 'task'}:{self.folder / 'runtime'}",
                handler,
            ],
            input=json.dumps(event),
            capture_output=True,
            text=True,
            timeout=patient(60),
            check=False,
            env={"PATH": os.environ["PATH"], "AWS_LAMBDA_FUNCTION_NAME": function, **self.variables},
        )
        assert done.returncode == 0, done.stderr
        lines = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("ANSWER ", "FROM ")))
        return json.loads(lines["ANSWER"]), set(json.loads(lines["FROM"]))
