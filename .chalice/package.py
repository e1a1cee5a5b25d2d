"""Builds what is deployed, for one stage and architecture: `deployment.zip` and `sam.json`.

They are in `build/package/<stage>-<arch>`.

1. stage: a project folder with exactly the files for the zip, and a config with the architecture 2. build: `chalice
package` in it, with `.chalice/resources.yaml` merged in 3. slim: files that no function imports are removed, the others
are compiled (`bytecode`) 4. check: the zip is rewritten with fixed dates and order, and must be below the size limit

Two builds of one tree are identical: nothing but its files and the versions in requirements.txt goes in.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from dyntrain.controller.local.lambdas.packaged import with_stage_defaults
from dyntrain.controller.local.pace import patient

ROOT = Path(__file__).resolve().parents[1]
BYTECODE = Path(__file__).resolve().parent / "bytecode.py"
STAGES = ("dev", "prod")
ARCHITECTURES = ("x86_64", "arm64")
LIMIT_BYTES = 4_000_000
PACKAGE_SECONDS = 180.0  # of an idle machine
ENTRY_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest date in a zip
# parts of the controller that only run on people's machines
NOT_DEPLOYED = (
    "cli",
    "dashboard",
    "local",
    "jobs/submission",
    "adapters/account.py",
    "adapters/stacks.py",
    "adapters/submission.py",
    "adapters/board_bucket.py",
    "adapters/logs.py",
    "jobs/usage.py",
    "core/history/bill.py",
    "contract/command_words.py",
    "contract/gpu_families.py",
    "core/decisions/arrows.py",
)
# Powertools' HTTP routes with their documentation pages, and its unused utilities; pydantic's old and experimental API
# and plug-in for mypy; cronsim's descriptions; stubs; lists of a wheel's files, which are not all in the zip
NOT_NEEDED = re.compile(
    r"aws_lambda_powertools/(event_handler/|utilities/(?!__init__\.py|jmespath_utils/)|metrics/provider/datadog/)"
    r"|pydantic/(v1/|experimental/|mypy\.py|color\.py|deprecated/(decorator|tools)\.py)"
    r"|cronsim/explain\.py|annotated_types/test_cases\.py|.*\.pyi$"
    r"|[^/]*\.dist-info/(RECORD$|sboms/)"
)


class PackageFailed(Exception):
    """The build failed; one sentence says what, and what to do."""


def package(stage: str, arch: str, out: Path, root: Path = ROOT) -> Path:
    """Write the package to `out`, which is replaced completely; returns the zip's path. Raises PackageFailed."""
    if stage not in STAGES or arch not in ARCHITECTURES:
        raise PackageFailed(
            f"no such package: STAGE={stage} ARCH={arch}; stages are {', '.join(STAGES)}, architectures "
            f"{', '.join(ARCHITECTURES)}"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="package-", dir=out.parent) as scratch:
        project, build_folder = Path(scratch) / "project", Path(scratch) / "built"
        stage_project(project, arch, root)
        _chalice(project, build_folder, stage)
        archive = build_folder / "deployment.zip"
        slim(archive, project, Path(scratch))
        size = archive.stat().st_size
        if size > LIMIT_BYTES:
            raise PackageFailed(
                f"the zip has {size} bytes, more than {LIMIT_BYTES}: see in requirements.txt what brought them in"
            )
        shutil.rmtree(out, ignore_errors=True)
        build_folder.rename(out)
    return out / "deployment.zip"


def stage_project(project: Path, arch: str, root: Path = ROOT) -> None:
    """Make the folder that Chalice packages; `vendor/` goes to the top of the zip, beside the wheels."""
    project.mkdir(parents=True)
    for name in ("app.py", "requirements.txt"):
        shutil.copyfile(root / name, project / name)
    package = project / "vendor" / "dyntrain"
    shutil.copytree(root / "controller", package / "controller", ignore=_ignore_function(root / "controller"))
    shutil.copyfile(root / "training" / "face" / "__init__.py", package / "__init__.py")
    (project / ".chalice").mkdir()
    for policy in sorted((root / ".chalice").glob("policy-*.json")):
        shutil.copyfile(policy, project / ".chalice" / policy.name)
    shutil.copyfile(root / ".chalice" / "resources.yaml", project / ".chalice" / "resources.yaml")
    config = json.loads((root / ".chalice" / "config.json").read_text(encoding="utf-8"))
    (project / ".chalice" / "config.json").write_text(
        json.dumps({**config, "lambda_architecture": arch}, indent=2), encoding="utf-8"
    )


def _ignore_function(controller: Path) -> Callable[[str, list[str]], set[str]]:
    def ignored_names(folder: str, names: list[str]) -> set[str]:
        return {
            name
            for name in names
            if name == "__pycache__"
            or name.endswith(".md")
            or (Path(folder) / name).relative_to(controller).as_posix() in NOT_DEPLOYED
        }

    return ignored_names


def slim(archive: Path, project: Path, scratch: Path) -> None:
    """Rewrite the zip without unneeded files, with bytecode, and reproducibly."""
    folder = scratch / "unpacked"
    with zipfile.ZipFile(archive) as old_zip:
        old_zip.extractall(folder, [name for name in old_zip.namelist() if not NOT_NEEDED.match(name)])
    for metadata in folder.glob("*.dist-info/METADATA"):  # keep a wheel's name and version, drop its README
        metadata.write_bytes(metadata.read_bytes().partition(b"\n\n")[0] + b"\n")
    modules = _run([sys.executable, str(BYTECODE), "list"], project)
    _run([sys.executable, "-S", str(BYTECODE), str(folder)], project, modules)
    new_archive = archive.with_suffix(".new")
    with zipfile.ZipFile(new_archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new_zip:
        for path in sorted(file for file in folder.rglob("*") if file.is_file()):
            entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), ENTRY_DATE)
            # readable by Lambda's user
            entry.compress_type, entry.external_attr, entry.create_system = (
                zipfile.ZIP_DEFLATED,
                0o100644 << 16,
                3,
            )
            new_zip.writestr(entry, path.read_bytes())
    new_archive.replace(archive)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _chalice(project: Path, build_folder: Path, stage: str) -> None:
    """Run Chalice, which imports the app; it needs a region but no account."""
    command = [
        sys.executable,
        "-c",
        "import sys; from chalice.cli import main; sys.exit(main())",
        "--project-dir",
        str(project),
        "package",
        "--stage",
        stage,
    ]
    command += [
        "--merge-template",
        str(project / ".chalice" / "resources.yaml"),
        "--template-format",
        "json",
        str(build_folder),
    ]
    _run(command, project)
    templates = [path for path in (build_folder / "sam.yaml", build_folder / "sam.json") if path.exists()]
    if not templates:
        raise PackageFailed(f"chalice package wrote no template in {build_folder}")
    if templates[0].suffix == ".yaml":  # Chalice's output if the merged template is YAML
        import yaml  # type: ignore[import-untyped]

        template = yaml.safe_load(templates[0].read_text(encoding="utf-8"))
        config = json.loads((project / ".chalice" / "config.json").read_text(encoding="utf-8"))
        template = with_stage_defaults(template, config, stage)
        (build_folder / "sam.json").write_text(json.dumps(template, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        templates[0].unlink()


def _run(command: list[str], project: Path, stdin: str = "") -> str:
    """Run a command in the staged project, whose modules come first; returns its output."""
    python_path = os.pathsep.join([str(project / "vendor"), str(project)])
    environment = {
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": python_path,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    time_limit = patient(PACKAGE_SECONDS)
    try:
        result = subprocess.run(
            command,
            cwd=project,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=time_limit,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PackageFailed(f"packaging took more than {time_limit:.0f} s; is the package index reachable?") from error
    if result.returncode:
        raise PackageFailed(f"packaging failed at {' '.join(command[:4])}:\n{result.stdout}{result.stderr}")
    return result.stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="make package", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--stage", default="dev")
    parser.add_argument("--arch", default="x86_64")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    out = arguments.out or ROOT / "build" / "package" / f"{arguments.stage}-{arguments.arch}"
    try:
        archive = package(arguments.stage, arguments.arch, out.absolute())
    except PackageFailed as error:
        sys.stderr.write(f"Error: {error}\n")
        return 1
    sys.stdout.write(f"{archive}: {archive.stat().st_size / 1e6:.2f} MB, sha256 {digest(archive)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
